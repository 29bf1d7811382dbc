//! Arbitrary bytes, and arbitrary jobs.

use crate::{gzip, read};
use proptest::option;
use proptest::prelude::*;
use tutti_trace::{
    Clean, Header, Job, Order, ReadOptions, Reader, RolledJobs, Status, Stretch, Stretched,
    Summary, Tolerance, Writer,
};

fn options() -> impl Strategy<Value = ReadOptions> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(lenient, bursts, sorted)| {
        ReadOptions {
            tolerance: if lenient { Tolerance::Lenient } else { Tolerance::Strict },
            rolled: if bursts { RolledJobs::Bursts } else { RolledJobs::Summary },
            order: if sorted { Order::Sorted } else { Order::AsFiled },
        }
    })
}

/// Text that gets far into the parser: words of traces, put together by chance.
fn nearly_a_trace() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => Just("-1".to_owned()),
        4 => (0u64..9).prop_map(|number| number.to_string()),
        1 => any::<u64>().prop_map(|number| number.to_string()),
        1 => any::<f64>().prop_map(|number| number.to_string()),
        1 => "[-+.0-9eE;: \\PC]{0,8}",
        1 => Just("; Queue: 1".to_owned()),
    ];
    let line = prop::collection::vec(word, 16..20).prop_map(|words| words.join(" "));
    let few = prop::collection::vec(line, 0..20);
    few.prop_map(|lines| lines.join("\n").into_bytes())
}

fn job() -> impl Strategy<Value = Job> {
    let number = || option::of(any::<u64>());
    let times = (number(), number(), number(), number(), number(), number());
    let processors = || option::of(any::<u32>());
    let counts = (number(), number(), number(), number(), number(), number(), number(), number());
    let status = option::of((0u64..6).prop_map(|code| Status::from_code(code).unwrap()));
    (times, processors(), processors(), counts, status).prop_map(
        |(times, allocated, requested, counts, status)| Job {
            number: 0,
            submit_ns: times.0,
            wait_ns: times.1,
            run_ns: times.2,
            allocated_processors: allocated,
            cpu_ns: times.3,
            used_memory_kb: counts.0,
            requested_processors: requested,
            requested_ns: times.4,
            requested_memory_kb: counts.1,
            status: status.filter(|status| !status.is_burst()),
            user: counts.2,
            group: counts.3,
            executable: counts.4,
            queue: counts.5,
            partition: counts.6,
            preceding_job: counts.7,
            think_ns: times.5,
        },
    )
}

/// Reads to the end or the first error, through all that a simulation does with a trace.
fn exercise(text: &[u8], options: ReadOptions) {
    let Ok(reader) = Reader::new("t", text, options) else { return };
    let header = reader.header().clone();
    let _ = (header.machine_processors(), header.queues(), header.partitions(), header.notes());
    let stretched = Stretched::new(reader, Stretch::by(1.5).unwrap());
    let jobs: Vec<_> = Clean::new(stretched, 1 << 20).map_while(Result::ok).collect();
    let summary: Summary = jobs.iter().collect();
    assert_eq!(summary.jobs(), jobs.len() as u64);
    assert!(jobs.iter().all(|job| job.run_ns() > 0 && job.run_ns() <= job.estimate_ns()));
}

proptest! {
    #[test]
    fn arbitrary_bytes_give_jobs_or_an_error(
        text in prop::collection::vec(any::<u8>(), 0..2_000),
        options in options(),
    ) {
        exercise(&text, options);
        let packed = [b"\x1f\x8b\x08\x00".as_slice(), &text].concat();
        exercise(&packed, options);
    }

    #[test]
    fn words_of_traces_in_any_order_give_jobs_or_an_error(
        text in nearly_a_trace(),
        options in options(),
        cut in any::<prop::sample::Index>(),
    ) {
        exercise(&text, options);
        let packed = gzip(&text);
        exercise(&packed, options);
        exercise(&packed[..cut.index(packed.len())], options);
    }

    #[test]
    fn a_lenient_reader_fails_only_with_its_input(text in nearly_a_trace()) {
        let lenient = ReadOptions { tolerance: Tolerance::Lenient, ..ReadOptions::default() };
        prop_assert!(read(&text, lenient).is_ok());
    }

    #[test]
    fn any_jobs_are_written_and_read_back(mut jobs in prop::collection::vec(job(), 0..20)) {
        for (job, number) in jobs.iter_mut().zip(1..) {
            job.number = number;
        }
        jobs.sort_by_key(|job| job.submit_ns);
        let mut writer = Writer::new(Vec::new(), &Header::of(&[("Note", "any")])).unwrap();
        for job in &jobs {
            writer.write(job).unwrap();
        }
        let text = writer.finish().unwrap();
        prop_assert_eq!(read(&text, ReadOptions::default()).unwrap(), jobs);
    }
}
