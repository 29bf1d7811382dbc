//! A cut of a real log: its header, its filtered version, and the way out and in again.

use crate::{gzip, line, read};
use tutti_trace::{Clean, Job, LeftOut, ReadOptions, Reader, Summary, Writer};

const KTH: &[u8] = include_bytes!("../data/kth-sp2-1996-2-cut.swf");
const KTH_FILTERED: &[u8] = include_bytes!("../data/kth-sp2-1996-2-cut-filtered.swf");

fn reader(text: &[u8]) -> Reader<&[u8]> {
    Reader::new("t", text, ReadOptions::default()).unwrap()
}

fn written(text: &[u8]) -> Vec<u8> {
    let reader = reader(text);
    let mut writer = Writer::new(Vec::new(), reader.header()).unwrap();
    for job in reader {
        writer.write(&job.unwrap()).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn the_header_of_a_log() {
    let reader = reader(KTH);
    let header = reader.header();
    assert_eq!(header.acknowledge().unwrap(), "Lars Malinowsky");
    assert_eq!(header.max_jobs(), Some(28_490));
    assert_eq!(header.machine_processors(), Some(100));
    assert_eq!(header.time_zone().unwrap(), "Europe/Stockholm");
    assert_eq!(header.lines().count(), 19);
}

#[test]
fn the_filter_gives_the_published_filtered_log() {
    let mut clean = Clean::new(reader(KTH), 100);
    let jobs: Vec<_> = clean.by_ref().map(Result::unwrap).collect();
    let records: Vec<Job> = jobs.iter().map(|job| job.record().clone()).collect();
    assert_eq!(records, read(KTH_FILTERED, ReadOptions::default()).unwrap());
    assert_eq!(clean.left_out().iter().collect::<Vec<_>>(), [(LeftOut::NoRunTime, 1)]);
    assert_eq!(clean.cut_down(), 4);
    assert_eq!(jobs.iter().collect::<Summary>().jobs(), 350);
}

#[test]
fn each_reason_to_leave_a_job_out_is_counted() {
    let text = "1 0 -1 9 4 -1 -1  0 60 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
                2 0 -1 9 0 -1 -1 -1 60 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
                3 0 -1 9 4 -1 -1 65 60 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
                4 0 -1 0 4 -1 -1  4 60 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
                5 0 -1 -1 4 -1 -1 4 60 -1 5 -1 -1 -1 -1 -1 -1 -1\n\
                6 -1 -1 9 4 -1 -1 4 60 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
                7 0 -1 9 4 -1 -1 64 0 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
                8 1 -1 9 4 -1 -1 1 0.5 -1 1 -1 -1 -1 -1 -1 -1 -1\n";
    let mut clean = Clean::new(reader(text.as_bytes()), 64);
    let jobs: Vec<_> = clean.by_ref().map(Result::unwrap).collect();
    let told: Vec<_> =
        jobs.iter().map(|job| (job.processors(), job.run_ns(), job.estimate_ns())).collect();
    let s = 1_000_000_000;
    assert_eq!(told, [(4, 9 * s, 60 * s), (64, 9 * s, 9 * s), (1, s / 2, s / 2)]);
    let expected = [
        (LeftOut::NoProcessors, 1),
        (LeftOut::TooManyProcessors, 1),
        (LeftOut::NoRunTime, 2),
        (LeftOut::NoSubmitTime, 1),
    ];
    assert_eq!(clean.left_out().iter().collect::<Vec<_>>(), expected);
    assert_eq!(clean.cut_down(), 1);
}

#[test]
fn what_is_written_is_read_back() {
    let out = written(KTH);
    assert_eq!(
        read(&out, ReadOptions::default()).unwrap(),
        read(KTH, ReadOptions::default()).unwrap()
    );
    assert_eq!(reader(&out).header(), reader(KTH).header());
    assert_eq!(written(&out), out);
}

#[test]
fn bytes_of_old_logs_stay_as_they_are() {
    let text =
        b"; Acknowledge: \xc5ke Sandgren\n;\n;   (no colon)\n1 0.25 -1 7.5 4 0.123456789 -1 \
                 4 60 -1 1 1 1 -1 -1 -1 -1 -1\n";
    assert_eq!(written(text), text);
}

#[test]
fn gzip_in_one_piece_or_several_is_read_like_plain_text() {
    let plain = read(KTH, ReadOptions::default()).unwrap();
    assert_eq!(read(&gzip(KTH), ReadOptions::default()).unwrap(), plain);
    let (first, second) = KTH.split_at(5_000);
    let members = [gzip(first), gzip(b""), gzip(second)].concat();
    assert_eq!(read(&members, ReadOptions::default()).unwrap(), plain);
}

#[test]
fn files_of_other_systems() {
    let job = line(1, 0, 5, 1);
    let text = format!("\u{feff}; MaxProcs: 8\r\n\r\n{}\r\n\r\n", job.trim_end()).into_bytes();
    let reader = reader(&text);
    assert_eq!(reader.header().max_procs(), Some(8));
    assert_eq!(reader.count(), 1);
    assert_eq!(read(b"", ReadOptions::default()).unwrap(), []);
}
