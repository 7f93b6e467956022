//! User ids that the kernel reports for sockets and processes.

/// The user id that stands for all users that this user namespace does not map
/// (`user_namespaces(7)`), unless the administrator has changed it.
const OVERFLOW: u32 = 65534;

/// Returns true if the id stands for one user here. Otherwise two sockets with this id may belong
/// to different users.
#[must_use]
pub fn is_one_user(number: u32) -> bool {
    number != OVERFLOW
        || std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_all(&map))
}

/// True for the map of the initial user namespace.
fn maps_all(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_overflow_number_may_stand_for_several_users() {
        assert!(
            [0, 1, 1000, OVERFLOW + 1, u32::MAX]
                .into_iter()
                .all(is_one_user)
        );
        assert!(maps_all("         0          0 4294967295\n"));
        for map in [
            "",
            "1000 0 1\n",
            "0 100000 65536\n",
            "0 0 4294967294\n1 1 1\n",
        ] {
            assert!(!maps_all(map), "{map:?}");
        }
    }
}
