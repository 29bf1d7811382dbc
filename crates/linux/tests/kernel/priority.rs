//! Who runs before whom.

use tutti_linux::rt::{become_realtime, give_way};

/// Policy and nice value of the calling thread, as the kernel tells them.
fn standing() -> (u32, i32) {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Counted from the state, which is the third field of all.
    (fields[41 - 3].parse().unwrap(), fields[19 - 3].parse().unwrap())
}

#[test]
fn who_gives_way_has_its_priority_back() {
    const ORDINARY: u32 = 0;
    const FIFO: u32 = 1;
    let thread = std::thread::spawn(|| {
        become_realtime(50).unwrap();
        assert_eq!(standing(), (FIFO, -20));
        let mut looks = 0;
        let done = give_way(5, || {
            assert_eq!(standing(), (ORDINARY, -20));
            looks += 1;
            looks == 3
        });
        assert!(done && looks == 3);
        assert!(!give_way(2, || false));
        assert_eq!(standing(), (FIFO, -20));
    });
    thread.join().unwrap();
    assert!(!give_way(2, || false), "an ordinary thread just yields");
    assert_eq!(standing().0, ORDINARY);
}
