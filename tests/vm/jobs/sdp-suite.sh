#!/bin/bash
# The suite `sdp` over RDMA devices, both ends on one of them. On rxe only the tests whose ends exchange the Hello
# elsewhere: its private data has no room for a Hello. A quick run makes a choice. Left out are the tests that
# connect over a TCP socket, which needs the software provider, and those that take too long here.
suite=$(ls -t "$DAT_STAGE"/../debug/deps/sdp-* 2> /dev/null | grep -v '\.d$' | head -1)
[ -n "$suite" ] || { echo "NOT RUN: the suite sdp is not built"; exit; }
export STACK_TESTS_TMP=/tmp/sdp-suite LD_LIBRARY_PATH=$DAT_STAGE/lib
# The long forms of the tests would take hours here.
full=$STACK_TESTS_FULL
unset STACK_TESTS_FULL
mkdir -p "$STACK_TESTS_TMP"
left_out='^(offloaded::.*|long_stream::.*|unusual_ends::a_direct_read_without_an_answer_ends_with_its_connection
unusual_ends::a_peer_behind_a_slow_link_receives_all_of_a_closed_socket|connections_are_made_and_closed
every_byte_of_an_uncopied_write_is_received)$'
left_out=${left_out//$'\n'/|}
chosen='^(messages_echo|each_half.*|few_and_small.*|urgent::.*|exchanged_hello::.*|watches::.*|suspension::another.*
write_zcopy::a_reader_that_waits.*)$'
chosen=${chosen//$'\n'/|}
trials=0 failed=0

trial() {
    trials=$((trials + 1))
    STACK_TESTS_DEVICE="$1 0" timeout 300 "$suite" --exact "$2" > "$STACK_TESTS_TMP/said" 2>&1 && return
    failed=$((failed + 1))
    echo "FAILED $2 on $1"
    cat "$STACK_TESTS_TMP/said"
}

for name in $("$suite" --list --format terse | sed -n 's/: test$//p' | grep -vE "$left_out"); do
    [ -n "$full" ] || [[ $name =~ $chosen ]] || continue
    trial siw0 "$name"
    [[ $name != exchanged_hello::* ]] || trial rxe0 "$name"
done
echo "$trials trials, $failed failed"
[ $trials -gt 9 ] && [ $failed = 0 ]
