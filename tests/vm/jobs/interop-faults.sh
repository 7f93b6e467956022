#!/bin/bash
# The software provider and the kernel's siw: a fault of either side ends in the Terminate message
# that the other one decodes.
. "$(dirname "$0")/../interop/trials.sh"
begin

# fault ROLE NAME CODE LAYER TYPE CODE: by siw, which must decode our Terminate (it takes the nibbles
# of the first byte the other way round), and by us, where we must decode siw's.
fault() {
    local by=listen them=connect
    [ "$1" = connect ] && by=connect them=listen
    try "$1" "" "talk=$2 by=$them" "" "" "EVENT broken" "got TERMINATE. layer $4, type $5, code $6"
    try "$1" "" "talk=$2 by=$by" "" "" "Terminated.*$3"
}
fault connect write-key "InvalidStag" 1 1 0
fault listen read-bounds "Bounds" 1 0 1
fault connect no-receive "NoBuffer" 2 1 2
fault listen invalidated "InvalidStag" 1 1 0
if [ -n "${STACK_TESTS_FULL:-}" ]; then
    fault listen write-key "InvalidStag" 1 1 0
    fault connect write-bounds "Bounds" 1 1 1
    fault listen write-bounds "Bounds" 1 1 1
    fault connect read-key "InvalidStag" 1 0 0
    fault listen read-key "InvalidStag" 1 0 0
    fault connect read-bounds "Bounds" 1 0 1
    fault listen no-receive "NoBuffer" 2 1 2
    fault connect invalidated "InvalidStag" 1 1 0
    # siw says of a message that is too long what it says of one without a receive.
    fault connect too-long "NoBuffer" 2 1 5
    fault listen too-long "NoBuffer" 2 1 5
fi
finish
