#!/bin/sh
# A robot without a line of Python: shell commands for kinds of tasks.
#
#   ./shell_robot.sh shell-1 &
#   fleetlog submit checksum --payload hello --wait
#   fleetlog submit percent --payload '{"part": 3, "of": 8}' --wait
#
# The payload comes on standard input (a JSON string as bare text, anything else as JSON). Exit code 0 is done, and what
# was printed is the result. 64, 65, 126 and 127 are fatal; every other code is tried again with back-off.
set -eu

percent='read -r json
part=$(printf %s "$json" | sed -n "s/.*\"part\": *\([0-9]*\).*/\1/p")
of=$(printf %s "$json" | sed -n "s/.*\"of\": *\([0-9]*\).*/\1/p")
[ -n "$part" ] && [ -n "$of" ] && [ "$of" -gt 0 ] || { echo "part and of are needed" >&2; exit 65; }
echo "{\"percent\": $((100 * part / of)), \"attempt\": $FLEETLOG_ATTEMPT}"'

exec fleetlog robot --id "${1:-shell-1}" --kind checksum='sha256sum - | cut -d " " -f 1' --kind percent="$percent"
