"""Lints and renders the Helm chart, with Helm's own code: chart.py CHART VALUES, the values as JSON.

Prints the problems and the rendered objects as JSON. Exits with 3 where Helm cannot be had.
"""

import json
import re
import sys

try:
    import helm_python as helm
except ImportError:
    sys.exit(3)

INFO = 1

chart, values = sys.argv[1], json.loads(sys.argv[2])
try:
    with helm.Chart.load(chart) as loaded:
        rendered = loaded.render(values, name="hits", namespace="web")
except (helm.HelmRenderError, helm.HelmValuesError) as error:
    print(json.dumps({"error": str(error)}))
    sys.exit()
messages = helm.lint(chart, values=values, namespace="web")["messages"]
objects = {}
for name, text in rendered.items():
    if name.endswith(".yaml"):
        for document in re.split(r"^---$", text, flags=re.MULTILINE):
            parsed = helm.values_from_yaml(document)
            objects[f"{parsed['kind']} {parsed['metadata']['name']}"] = parsed
print(json.dumps({"problems": [it for it in messages if it["severity"] > INFO], "objects": objects}))
