# Is a new feature used? By day, and this week against the last.
#
# Events come with their own times, here those of the last four weeks in one request. Then any window is a question: nothing was
# chosen before.
set -eu

now=$(date +%s)
midnight=$((now - now % 86400))    # in UTC: the days before it are over

# A line for each day and user: {"key","n","at","member"}. Each day one more user tries it.
awk -v midnight="$midnight" 'BEGIN {
    for (day = 28; day >= 1; day--)
        for (user = 1; user <= 29 - day; user++)
            printf "{\"key\":\"feature:export\",\"n\":2,\"at\":%d,\"member\":\"user-%d\"}\n", midnight - day * 86400 + user * 60, user
}' | curl -sS -X POST -H 'content-type: application/x-ndjson' --data-binary @- "http://$HTTP/v1/hits"
echo

end=$((midnight - 1))
cli() { redis-cli -p "$PORT" "$@"; }
echo "last week:       $(cli HITS feature:export 7d AT $end) uses by $(cli UNIQ feature:export 7d) people"
echo "the week before: $(cli HITS feature:export 7d AT $((end - 7 * 86400))) uses"
echo "by day:          $(cli SERIES feature:export 7d 1d AT $end | awk 'NR % 2 == 0 { printf " %d", $1 }')"
