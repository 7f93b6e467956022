#!/bin/bash
# The software provider and the kernel's siw: a fault of either side causes a Terminate message, which
# the other side decodes.
. "$(dirname "$0")/../interop/trials.sh"
begin

# fault ROLE NAME CODE LAYER TYPE CODE: a fault of siw, which must decode the provider's Terminate (siw
# exchanges the nibbles of the first byte), and of the provider, which must decode siw's Terminate.
fault() {
    local by=listen them=connect
    [ "$1" = connect ] && by=connect them=listen
    try "$1" "" "exchange=$2 by=$them" "" "" "EVENT broken" "got TERMINATE. layer $4, type $5, code $6"
    try "$1" "" "exchange=$2 by=$by" "" "" "Terminated.*$3"
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
    # siw reports a message that is too long with the code of a message without a receive.
    fault connect too-long "NoBuffer" 2 1 5
    fault listen too-long "NoBuffer" 2 1 5
fi
finish
