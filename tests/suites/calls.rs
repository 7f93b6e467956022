//! Calls of DAT 2.0, end to end, for which `dat-conformance` has no case, or which OFA's providers
//! tolerate. The programs are `tests/c/calls_*.c`, in C over the staged libraries; each trial of a
//! program is one test here.

use stack_tests::trials;

trials! { compile => calls_memory:
    a_window_for_one_endpoint_is_closed_to_others = "window-for-ep",
    zero_based_memory_counts_from_zero = "zero-based",
}

trials! { compile => calls_srq:
    the_high_watermarks_notify_and_break_the_connection = "high-watermarks",
    the_soft_watermark_can_be_set_by_attributes = "soft-watermark-attribute",
}

trials! { compile => calls_handoff:
    a_request_does_not_move_to_another_adapter_of_its_process = "own-process",
}

trials! { compile => calls_tolerated:
    endpoints_without_evds_for_completions_connect = "without-evds",
    a_remote_segment_needs_no_length = "without-length",
    a_segment_list_may_be_unaligned = "unaligned-list",
    completions_that_are_not_taken_fill_the_queues_of_their_endpoint = "full-queues",
    a_message_waits_for_its_receive = "late-receives",
}
