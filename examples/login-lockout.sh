# Locks an account after three wrong passwords in a minute.
#
# A login asks the limit first. It may try the password only if the limit allows it. After a right password the attempt is
# given back, so that only wrong ones count.
set -eu

limit() { redis-cli -p "$PORT" LIMIT "login:$1" @login $2; }

login() {
    set -- "$1" "$2" $(limit "$1" "")
    # Now $3 to $7 are the five integers: allowed, max, remaining, retry after, reset after.
    if [ "$3" = 0 ]; then
        echo "$1: locked for $((($6 + 59999) / 60000)) minutes"
    elif [ "$2" = secret ]; then
        limit "$1" "COST -1" >/dev/null
        echo "$1: welcome"
    else
        echo "$1: wrong password, tries left: $5"
    fi
}

login bob secret
login alice guess1
login alice guess2
login alice guess3
login alice guess4
login alice secret
login bob secret

# An administrator unlocks the account.
redis-cli -p "$PORT" DEL login:alice >/dev/null
login alice secret
