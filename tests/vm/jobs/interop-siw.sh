#!/bin/bash
# The software provider, over plain TCP, and the kernel's siw communicate, in both roles: every kind of
# start-up, private data of every length, every operation in both directions with verified content.
. "$(dirname "$0")/../interop/trials.sh"
begin

# Start-up: revisions, CRC, the sender of the first frame. siw sends Requests of revision 2 only.
try connect "" "talk=brief first=listen"
try connect "crc=off mpa_revision=1" "talk=brief"
try connect "crc=off peer_to_peer=off" "talk=greet"
try connect "peer_to_peer=read" "talk=brief first=listen"
try connect "peer=siw" "talk=brief"
try listen "" "talk=brief"
try listen "crc=off" "talk=brief"

# Private data, up to siw's limit: 251 bytes in revision 2, 255 in revision 1.
try connect "" "talk=none" "data=251 expect=251" "data=251 expect=251"
try connect "mpa_revision=1" "talk=none" "data=255 expect=255" "data=255 expect=255"
try connect "" "talk=none" "data=0 expect=251" "data=251 expect=0 reject=1" "EVENT peer-rejected"
try listen "" "talk=none" "data=251 expect=251" "data=251 expect=251"
try listen "" "talk=none" "data=252 expect=0 reject=1" "data=0 expect=252"

# Sockets of the consumer.
try ssp "" "talk=brief" "data=100 expect=7" "data=7 expect=100"
try upgrade "" "talk=brief" "data=100 expect=7" "data=7 expect=100"

# More reads at once than either side permits to be in progress.
try connect "" "talk=brief" "reads=3" "reads=4"
try listen "" "talk=brief" "reads=5" "reads=2"

# provider-ib on siw, instead of verbs.
their_peer=dat
try connect "" "talk=brief" "data=251 expect=251" "data=251 expect=251"
try listen "" "talk=brief" "data=251 expect=251" "data=251 expect=251"
try connect "crc=off mpa_revision=1" "talk=brief"
try listen "" "talk=none" "data=100 expect=7 reject=1" "data=7 expect=100"
try ssp "" "talk=brief"
their_peer=verbs

if [ -n "${STACK_TESTS_FULL:-}" ]; then
    for settings in "" "crc=off"; do
        try connect "$settings" "talk=all"
        try listen "$settings" "talk=all"
        try connect "$settings" "talk=flood"
        try listen "$settings" "talk=flood"
    done
    try connect "crc=off mpa_revision=1" "talk=all"
    try connect "peer=siw" "talk=all"
    try ssp "" "talk=all"
    # siw occasionally misses a first frame.
    for _ in 1 2 3; do
        try connect "" "talk=greet first=listen times=100"
        try connect "" "talk=greet times=100"
        try connect "peer_to_peer=read" "talk=greet first=listen times=100"
        try connect "" "talk=none times=100"
        try listen "" "talk=none times=100"
        try listen "" "talk=greet times=100"
    done
    for data in 0 1 100 250; do
        try connect "" "talk=none" "data=$data expect=$data" "data=$data expect=$data"
        try listen "" "talk=none" "data=$data expect=$data" "data=$data expect=$data"
    done
    their_peer=dat
    try connect "" "talk=all"
    try listen "" "talk=all"
    try connect "" "talk=greet times=100"
    try listen "" "talk=greet times=100"
fi
finish
