# How often was an ad shown, and to how many people?
#
# Browsers report each impression with its own id, and report it again when they get no answer. Each counts once. This sends 500
# impressions to 90 people, and a hundred of them twice.
set -eu

cli() { redis-cli -p "$PORT" "$@"; }

awk 'BEGIN {
    for (i = 1; i <= 500; i++) print "HIT ad:42 1 ID impression-" i " MEMBER person-" i % 90
    for (i = 1; i <= 100; i++) print "HIT ad:42 1 ID impression-" i " MEMBER person-" i % 90
}' | cli | awk 'END { print "reports:    ", NR }'

echo "impressions: $(cli HITS ad:42 5m)"
echo "people:      $(cli UNIQ ad:42 5m)"
