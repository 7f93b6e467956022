//! The calls of DAT 2.0 that OFA's library declares and does not support, and calls that OFA's
//! providers tolerate. Each is tested end to end by a C program with both ends of a connection,
//! over the staged libraries. The programs are `tests/c/calls_*.c`; each trial of a program is one
//! test here.

use stack_tests::trials;

trials! { compile => calls_connect:
    no_listener_remains_after_a_common_service_point = "common-service-point-gone",
    the_receives_that_an_endpoint_holds_are_counted = "recv-query",
    an_endpoint_reports_its_state_and_idleness = "status",
}

trials! { compile => calls_memory:
    a_window_for_one_endpoint_is_closed_to_others = "window-for-ep",
    a_send_invalidates_a_window_and_notifies_the_receiver = "send-with-invalidate",
    a_region_of_a_region_has_rights_of_its_own = "region-of-region",
    zero_based_memory_counts_from_zero = "zero-based",
    shared_memory_is_registered_by_every_process_that_maps_it = "shared-memory",
}

trials! { compile => calls_events:
    a_descriptor_shows_a_trigger = "cno-descriptor",
    an_agent_is_called_once_for_a_trigger = "cno-agent",
    an_unsignalled_event_waits_for_another_one = "unsignalled",
    a_solicited_event_wakes_its_waiters = "solicited",
    events_are_counted = "counters",
    a_signal_handler_ends_a_wait_for_completions = "interrupted",
}

trials! { compile => calls_srq:
    the_low_watermark_is_reported_once = "low-watermark",
    the_high_watermarks_notify_and_break_the_connection = "high-watermarks",
    an_endpoint_reports_its_last_receive = "last-receive",
    the_low_watermark_can_be_set_at_creation = "low-watermark-attribute",
    the_soft_watermark_can_be_set_by_attributes = "soft-watermark-attribute",
}

trials! { compile => calls_extension:
    counters_are_stopped_and_started = "stop-counters",
    an_adapter_is_queried_without_being_opened = "open-query",
}

trials! { compile => calls_tolerated:
    endpoints_without_evds_for_completions_connect = "without-evds",
    a_remote_segment_needs_no_length = "without-length",
    a_segment_list_may_be_unaligned = "unaligned-list",
    completions_that_are_not_taken_fill_the_queues_of_their_endpoint = "full-queues",
    a_message_waits_for_its_receive = "late-receives",
}
