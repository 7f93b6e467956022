//! Waiting for a condition of the test.

/// Evaluates an `Option` repeatedly until it has a value, and returns the value. After
/// [`DEADLINE`](crate::DEADLINE) the calling function fails with the message of the further
/// arguments.
#[macro_export]
macro_rules! awaited {
    ($option:expr, $($message:tt)+) => {{
        let end = ::std::time::Instant::now() + $crate::DEADLINE;
        loop {
            if let Some(value) = $option {
                break value;
            }
            ::anyhow::ensure!(::std::time::Instant::now() < end, $($message)+);
            ::std::thread::sleep(::std::time::Duration::from_millis(1));
        }
    }};
}

/// Evaluates a condition repeatedly until it is true, as [`awaited`] does.
#[macro_export]
macro_rules! until {
    ($condition:expr, $($message:tt)+) => {
        $crate::awaited!(($condition).then_some(()), $($message)+)
    };
}
