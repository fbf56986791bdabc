#!/bin/sh
# A client of the HTTP gateway with curl alone. Start a broker first: weft serve --gateway 9380
set -eu
gateway=${GATEWAY:-http://localhost:9380}
cloud='Content-Type: application/cloudevents+json'
json='Content-Type: application/json'

# Live events, in the background, until two have come. Reading ends when the subscription is known to be active.
live=$(mktemp)
trap 'kill $listener 2>/dev/null || true; rm -f "$live"' EXIT
curl -sN "$gateway/events?where=magnitude>=5" > "$live" &
listener=$!
until grep -q '^: complete' "$live"; do sleep 0.1; done

# A durable subscription keeps its events until they are acknowledged.
curl -s -X PUT "$gateway/subscriptions/alerts" -H "$json" -d '{"filters": [{"sql": "magnitude >= 6"}]}' > /dev/null

publish() {
  curl -s --fail-with-body "$gateway/events" -H "$cloud" \
    -d "{\"specversion\": \"1.0\", \"id\": \"$1\", \"source\": \"/usgs\", \"type\": \"quake\", \"magnitude\": $2}"
}
publish q1 4.2
publish q2 5.5
publish q3 6.1

until [ "$(grep -c '^data:' "$live")" -ge 2 ]; do sleep 0.1; done
echo "live:"
sed -n 's/^data: .*"id":"\([^"]*\)".*"magnitude":"\([^"]*\)".*/  \1 \2/p' "$live"

echo "pulled:"
offsets=$(curl -si "$gateway/subscriptions/alerts/pull" -H "$json" -d '{"wait": 20}' |
  sed -n 's/^weft-offsets: \([0-9]*\).*/\1/p')
curl -s "$gateway/subscriptions/alerts/ack" -H "$json" -d "{\"offsets\": [$offsets]}"
echo

# A mistake is explained.
curl -s "$gateway/events?where=magnitude=>5" | sed 's/.*"detail":"\([^"]*\)".*/\1/'
echo
curl -s -X DELETE "$gateway/subscriptions/alerts"
