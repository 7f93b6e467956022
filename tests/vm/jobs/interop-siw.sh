#!/bin/bash
# The software provider, over plain TCP, and the kernel's siw communicate, in both roles: every kind of
# start-up, private data of every length, every operation in both directions with verified content.
. "$(dirname "$0")/../interop/trials.sh"
begin

# Start-up: revisions, CRC, the sender of the first frame. siw sends Requests of revision 2 only.
try connect "" "exchange=brief first=listen"
try connect "crc=off mpa_revision=1" "exchange=brief"
try connect "crc=off peer_to_peer=off" "exchange=greet"
try connect "peer_to_peer=read" "exchange=brief first=listen"
try connect "peer=siw" "exchange=brief"
try listen "" "exchange=brief"
try listen "crc=off" "exchange=brief"

# Private data, up to siw's limit: 251 bytes in revision 2, 255 in revision 1.
try connect "" "exchange=none" "data=251 expect=251" "data=251 expect=251"
try connect "mpa_revision=1" "exchange=none" "data=255 expect=255" "data=255 expect=255"
try connect "" "exchange=none" "data=0 expect=251" "data=251 expect=0 reject=1" "EVENT peer-rejected"
try listen "" "exchange=none" "data=251 expect=251" "data=251 expect=251"
try listen "" "exchange=none" "data=252 expect=0 reject=1" "data=0 expect=252"

# Sockets of the consumer.
try ssp "" "exchange=brief" "data=100 expect=7" "data=7 expect=100"
try upgrade "" "exchange=brief" "data=100 expect=7" "data=7 expect=100"

# More reads at once than either side permits to be in progress.
try connect "" "exchange=brief" "reads=3" "reads=4"
try listen "" "exchange=brief" "reads=5" "reads=2"

# provider-ib on siw, instead of verbs.
their_peer=dat
try connect "" "exchange=brief" "data=251 expect=251" "data=251 expect=251"
try listen "" "exchange=brief" "data=251 expect=251" "data=251 expect=251"
try connect "crc=off mpa_revision=1" "exchange=brief"
try listen "" "exchange=none" "data=100 expect=7 reject=1" "data=7 expect=100"
try ssp "" "exchange=brief"
their_peer=verbs

if [ -n "${STACK_TESTS_FULL:-}" ]; then
    for settings in "" "crc=off"; do
        try connect "$settings" "exchange=all"
        try listen "$settings" "exchange=all"
        try connect "$settings" "exchange=flood"
        try listen "$settings" "exchange=flood"
    done
    try connect "crc=off mpa_revision=1" "exchange=all"
    try connect "peer=siw" "exchange=all"
    try ssp "" "exchange=all"
    # siw occasionally misses a first frame.
    for _ in 1 2 3; do
        try connect "" "exchange=greet first=listen times=100"
        try connect "" "exchange=greet times=100"
        try connect "peer_to_peer=read" "exchange=greet first=listen times=100"
        try connect "" "exchange=none times=100"
        try listen "" "exchange=none times=100"
        try listen "" "exchange=greet times=100"
    done
    for data in 0 1 100 250; do
        try connect "" "exchange=none" "data=$data expect=$data" "data=$data expect=$data"
        try listen "" "exchange=none" "data=$data expect=$data" "data=$data expect=$data"
    done
    their_peer=dat
    try connect "" "exchange=all"
    try listen "" "exchange=all"
    try connect "" "exchange=greet times=100"
    try listen "" "exchange=greet times=100"
fi
finish
