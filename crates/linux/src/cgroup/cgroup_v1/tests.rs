//! Companions on directories that stand for both hierarchies.

use super::*;

/// A directory that stands for both hierarchies, removed with the test.
struct Fixture(PathBuf);

impl Fixture {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tutti-companion-{}-{name}", std::process::id()));
        for part in ["v2/top/a/b", "v1/memory", "v1/pids", "v1/cpu", "v1/cpuset", "v1/devices"] {
            fs::create_dir_all(path.join(part)).unwrap();
        }
        Self(path)
    }

    fn top(&self) -> Top {
        let base = |name| Some(self.0.join("v1").join(name));
        Top {
            path: self.0.join("v2/top"),
            memory_base: base("memory"),
            pids_base: base("pids"),
            cpu_base: base("cpu"),
            cpuset_base: base("cpuset"),
            devices_base: base("devices"),
            cpuset_values: Mutex::default(),
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_process_goes_to_the_nearest_companion() {
    let fixture = Fixture::new("nearest");
    let top = fixture.top();
    let (a, b) = (fixture.0.join("v2/top/a"), fixture.0.join("v2/top/a/b"));
    assert!(top.companions(&b).is_empty());

    assert_eq!(top.set_memory_limit(&a, 1000).unwrap(), LimitBy::V1);
    let v1 = fixture.0.join("v1");
    assert_eq!(top.companions(&b), [v1.join("memory/top/a/tasks")]);
    assert_eq!(fs::read(v1.join("memory/top/a/memory.limit_in_bytes")).unwrap(), b"1000");

    assert_eq!(top.set_process_limit(&b, 5).unwrap(), LimitBy::V1);
    let expected = [v1.join("memory/top/a/tasks"), v1.join("pids/top/a/b/tasks")];
    assert_eq!(top.companions(&b), expected);
}

#[test]
fn weights_stand_beside_each_other_and_go_with_their_groups() {
    let fixture = Fixture::new("weights");
    let top = fixture.top();
    let (a, b) = (fixture.0.join("v2/top/a"), fixture.0.join("v2/top/a/b"));
    let cpu = fixture.0.join("v1/cpu");
    assert_eq!(top.weigh(&a).unwrap(), cpu.join("top.a"));
    assert_eq!(top.companions(&b), [cpu.join("top.a/tasks")]);
    assert_eq!(top.weigh(&b).unwrap(), cpu.join("top.a.b"));
    fs::create_dir(cpu.join("topless")).unwrap();
    fs::create_dir(cpu.join("top.ab")).unwrap();
    assert!(top.remove_companions(&a).unwrap());
    let left = |name: &str| cpu.join(name).is_dir();
    assert!(!left("top.a") && !left("top.a.b") && left("top") && left("top.ab"));
    assert!(top.remove_companions(&top.path).unwrap());
    assert!(!left("top") && !left("top.ab") && left("topless"));
    fs::write(a.join("cpu.weight"), "100").unwrap();
    assert_eq!(top.weigh(&a).unwrap(), a);
}

#[test]
fn the_controller_of_v2_is_preferred() {
    let fixture = Fixture::new("v2");
    let a = fixture.0.join("v2/top/a");
    fs::write(a.join("memory.max"), "max").unwrap();
    assert_eq!(fixture.top().set_memory_limit(&a, 4096).unwrap(), LimitBy::V2);
    assert_eq!(fs::read(a.join("memory.max")).unwrap(), b"4096");
    assert!(fixture.top().companions(&a).is_empty());
}

#[test]
fn kills_for_memory_are_summed_in_v1() {
    let fixture = Fixture::new("oom");
    let [of_a, of_b] = ["a", "a.b"].map(|name| fixture.0.join("v1/memory/top").join(name));
    for companion in [&of_a, &of_b] {
        fs::create_dir_all(companion).unwrap();
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
        fs::write(companion.join("memory.oom_control"), text).unwrap();
    }
    fs::write(of_a.join("memory.max_usage_in_bytes"), "77\n").unwrap();
    let a = fixture.0.join("v2/top/a");
    assert_eq!(fixture.top().oom_kills(&a), 4);
    assert_eq!(fixture.top().oom_kills(&a.join("b")), 2);
    assert_eq!(fixture.top().memory_peak(&a), Some(77));
}

#[test]
fn a_limit_of_processes_was_reached_if_one_was_refused_and_there_were_so_many() {
    let fixture = Fixture::new("refused");
    let (top, a) = (fixture.top(), fixture.0.join("v2/top/a"));
    assert!(!top.has_reached_process_limit(&a), "there is no limit");
    assert_eq!(top.set_process_limit(&a, 50).unwrap(), LimitBy::V1);
    let v1 = fixture.0.join("v1/pids/top/a");
    for group in [v1, a.clone()] {
        let tell = |file: &str, text: &str| fs::write(group.join(file), text).unwrap();
        tell("pids.max", "50\n");
        tell("pids.events", "max 0\n");
        assert!(!top.has_reached_process_limit(&a), "nobody was refused one");
        fs::create_dir_all(group.join("b")).unwrap();
        tell("b/pids.events", "max 3\n");
        assert!(top.has_reached_process_limit(&a), "it was somebody below");
        tell("pids.peak", "49\n");
        assert!(!top.has_reached_process_limit(&a), "it was another's limit");
        tell("pids.peak", "50\n");
        assert!(top.has_reached_process_limit(&a));
        for file in ["pids.events.local", "b/pids.events.local"] {
            tell(file, "max 0\n");
        }
        assert!(!top.has_reached_process_limit(&a), "what is this group's alone is believed");
        tell("pids.max", "max\n");
        assert!(!top.has_reached_process_limit(&a), "there is no limit");
    }
}

#[test]
fn without_controller_a_limit_is_refused() {
    let fixture = Fixture::new("none");
    let top = Top { memory_base: None, ..fixture.top() };
    let error = top.set_memory_limit(&fixture.0.join("v2/top/a"), 1).unwrap_err();
    assert!(matches!(error, Error::NoController { controller: "memory", .. }), "{error}");
    assert_eq!(top.limits().memory, LimitBy::None);
}

#[test]
fn the_mark_names_the_bases() {
    let top = Top::from_mark(Path::new("/x"), "memory=/m/a b\npids=/p\n");
    assert_eq!(top.memory_base, Some(PathBuf::from("/m/a b")));
    assert_eq!(top.pids_base, Some(PathBuf::from("/p")));
}

#[test]
fn memory_is_counted_for_each_task_beside_the_others_and_goes_with_the_job() {
    let fixture = Fixture::new("counted");
    let top = fixture.top();
    let job = fixture.0.join("v2/top/job");
    let task = |rank: u32| job.join(format!("step/{rank}"));
    let beside = fixture.0.join("v1/memory/top");
    for rank in [0, 1] {
        let companion = beside.join(format!("job.step.{rank}"));
        assert_eq!(top.count_memory(&task(rank)), Some(companion.clone()));
        fs::write(companion.join(PEAK_V1), format!("{}\n", 70 + rank)).unwrap();
        assert_eq!(top.memory_peak(&task(rank)), Some(70 + u64::from(rank)));
    }
    assert_eq!(top.memory_peak(&job), None, "a sum of peaks is no peak");
    fs::create_dir(beside.join("job2.step.0")).unwrap();
    for rank in [0, 1] {
        // The kernel removes the files of a group with it.
        fs::remove_file(beside.join(format!("job.step.{rank}")).join(PEAK_V1)).unwrap();
    }
    assert!(top.remove_companions(&job).unwrap());
    let left: Vec<_> = fs::read_dir(&beside).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["job2.step.0"]);
}

#[test]
fn memory_is_counted_in_v2_only_where_its_peak_is_told() {
    let fixture = Fixture::new("counted-v2");
    let top = Top { memory_base: None, ..fixture.top() };
    let task = fixture.0.join("v2/top/a/b");
    let handed_down = fixture.0.join("v2/top/a/cgroup.subtree_control");
    fs::write(top.path.join(MEMORY.file_v2), "max").unwrap();
    assert_eq!(top.count_memory(&task), None);
    assert!(!handed_down.exists(), "before 5.19 it would be in vain");
    fs::write(top.path.join(PEAK_V2), "0").unwrap();
    assert_eq!(top.count_memory(&task), None);
    assert_eq!(fs::read(handed_down).unwrap(), b"+memory");
}
