//! One line of text to one job.

use crate::error::{LineProblem, Tolerated, shown};
use crate::job::{FIELDS, Field, Job, Status};
use crate::number::{Decimal, NumberError, SHORT_MAX};
use crate::reader::Tolerance;
use crate::tally::Tally;
use std::ops::Range;

/// Reads the job that a line tells. What a lenient reader corrects is counted; what it can't
/// correct is an error like any other.
pub(crate) fn job_of_line(
    line: &[u8],
    tolerance: Tolerance,
    tolerated: &mut Tally<Tolerated>,
) -> Result<Job, LineProblem> {
    let mut reader = FieldReader { line, word: 0..0, tolerance, tolerated };
    match reader.job() {
        Ok(job) => {
            reader.end()?;
            Ok(job)
        }
        Err(problem) => {
            // That fields are missing is the better reason: others may have slipped for it.
            let found = words(line).count();
            Err(if found < FIELDS { LineProblem::Fields { found } } else { problem })
        }
    }
}

/// The words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| is_blank(byte)).filter(|word| !word.is_empty())
}

/// Whether a byte stands between words. Other than in Rust's own sense a vertical tab does too.
pub(crate) fn is_blank(byte: u8) -> bool {
    // Nearly every byte is decided by the first comparison.
    byte <= b' ' && matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// Reads the fields of a line, which must be asked for in their order.
struct FieldReader<'a> {
    line: &'a [u8],
    /// Where the word of the latest field stands.
    word: Range<usize>,
    tolerance: Tolerance,
    tolerated: &'a mut Tally<Tolerated>,
}

impl FieldReader<'_> {
    fn job(&mut self) -> Result<Job, LineProblem> {
        Ok(Job {
            number: self.count(Field::Number)?.ok_or(LineProblem::NoNumber)?,
            submit_ns: self.time_ns(Field::Submit)?,
            wait_ns: self.time_ns(Field::Wait)?,
            run_ns: self.time_ns(Field::Run)?,
            allocated_processors: self.processors(Field::AllocatedProcessors)?,
            cpu_ns: self.time_ns(Field::Cpu)?,
            used_memory_kb: self.memory_kb(Field::UsedMemory)?,
            requested_processors: self.processors(Field::RequestedProcessors)?,
            requested_ns: self.time_ns(Field::Requested)?,
            requested_memory_kb: self.memory_kb(Field::RequestedMemory)?,
            status: self.status()?,
            user: self.count(Field::User)?,
            group: self.count(Field::Group)?,
            executable: self.count(Field::Executable)?,
            queue: self.count(Field::Queue)?,
            partition: self.count(Field::Partition)?,
            preceding_job: self.count(Field::PrecedingJob)?,
            think_ns: self.time_ns(Field::Think)?,
        })
    }

    fn time_ns(&mut self, field: Field) -> Result<Option<u64>, LineProblem> {
        let Some(number) = self.number(field)? else { return Ok(None) };
        number.seconds_to_ns().map(Some).ok_or_else(|| self.too_large(field))
    }

    fn memory_kb(&mut self, field: Field) -> Result<Option<u64>, LineProblem> {
        Ok(self.number(field)?.map(|number| number.whole))
    }

    fn processors(&mut self, field: Field) -> Result<Option<u32>, LineProblem> {
        let Some(count) = self.count(field)? else { return Ok(None) };
        u32::try_from(count).map(Some).map_err(|_| self.too_large(field))
    }

    fn status(&mut self) -> Result<Option<Status>, LineProblem> {
        let Some(code) = self.count(Field::Status)? else { return Ok(None) };
        let status = Status::from_code(code);
        if status.is_none() {
            self.mend(LineProblem::UnknownStatus { text: shown(self.word()) })?;
        }
        Ok(status)
    }

    fn count(&mut self, field: Field) -> Result<Option<u64>, LineProblem> {
        let Some(number) = self.number(field)? else { return Ok(None) };
        if number.billionths != 0 {
            self.mend(LineProblem::NotWhole { field, text: shown(self.word()) })?;
        }
        Ok(Some(number.whole))
    }

    /// The number in the next field; None if it is not known. It is never negative.
    fn number(&mut self, field: Field) -> Result<Option<Decimal>, LineProblem> {
        let begin = self.next_word();
        // Most words are numbers so short that they can't be too large, and half of the others are
        // -1: they are read as their ends are looked for.
        let (mut at, mut whole) = (begin, 0u64);
        while let Some(digit) = self.line.get(at).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            whole = whole.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        if (1..=SHORT_MAX).contains(&(at - begin)) && self.is_end(at) {
            self.word = begin..at;
            return Ok(Some(Decimal { negative: false, whole, billionths: 0 }));
        }
        if self.line[begin..].starts_with(b"-1") && self.is_end(begin + 2) {
            self.word = begin..begin + 2;
            return Ok(None);
        }
        while !self.is_end(at) {
            at += 1;
        }
        self.word = begin..at;
        self.unusual_number(field)
    }

    /// The same, for whatever stands there.
    fn unusual_number(&mut self, field: Field) -> Result<Option<Decimal>, LineProblem> {
        match Decimal::parse(self.word()) {
            Ok(number) if !number.is_below_zero() => Ok(Some(number)),
            Ok(number) => {
                if !number.is_unknown() {
                    self.mend(LineProblem::Negative { field, text: shown(self.word()) })?;
                }
                Ok(None)
            }
            Err(NumberError::TooLarge) => Err(self.too_large(field)),
            Err(NumberError::NotANumber) => {
                Err(LineProblem::NotANumber { field, text: shown(self.word()) })
            }
        }
    }

    /// Where the next word begins.
    fn next_word(&self) -> usize {
        let mut at = self.word.end;
        while self.line.get(at).is_some_and(|&byte| is_blank(byte)) {
            at += 1;
        }
        at
    }

    /// Whether no word goes on there.
    fn is_end(&self, at: usize) -> bool {
        self.line.get(at).is_none_or(|&byte| is_blank(byte))
    }

    /// Nothing may stand after the last field.
    fn end(&mut self) -> Result<(), LineProblem> {
        match words(&self.line[self.word.end..]).count() {
            0 => Ok(()),
            more => self.mend(LineProblem::Fields { found: FIELDS + more }),
        }
    }

    fn word(&self) -> &[u8] {
        &self.line[self.word.clone()]
    }

    fn too_large(&self, field: Field) -> LineProblem {
        LineProblem::TooLarge { field, text: shown(self.word()) }
    }

    /// Counts what a lenient reader passes over; for a strict one it is an error.
    fn mend(&mut self, problem: LineProblem) -> Result<(), LineProblem> {
        match self.tolerance {
            Tolerance::Strict => Err(problem),
            Tolerance::Lenient => {
                self.tolerated.add(problem.tolerated());
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict(line: &str) -> Result<Job, LineProblem> {
        job_of_line(line.as_bytes(), Tolerance::Strict, &mut Tally::default())
    }

    /// The message for a line that has `word` in the field with this number, and is else right.
    fn message(field: usize, word: &str) -> String {
        let words: Vec<&str> = (1..=18).map(|at| if at == field { word } else { "1" }).collect();
        strict(&words.join(" ")).unwrap_err().to_string()
    }

    #[test]
    fn each_field_comes_from_its_place() {
        let job = strict(" 1 2.5\t3  4 5 6 7 8 9 10 1 12 13 14 15 16 17 18\r").unwrap();
        let expected = Job {
            number: 1,
            submit_ns: Some(2_500_000_000),
            wait_ns: Some(3_000_000_000),
            run_ns: Some(4_000_000_000),
            allocated_processors: Some(5),
            cpu_ns: Some(6_000_000_000),
            used_memory_kb: Some(7),
            requested_processors: Some(8),
            requested_ns: Some(9_000_000_000),
            requested_memory_kb: Some(10),
            status: Some(Status::Completed),
            user: Some(12),
            group: Some(13),
            executable: Some(14),
            queue: Some(15),
            partition: Some(16),
            preceding_job: Some(17),
            think_ns: Some(18_000_000_000),
        };
        assert_eq!(job, expected);
    }

    #[test]
    fn minus_one_is_not_known() {
        let job = strict("7 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1.0").unwrap();
        assert_eq!(job, Job { number: 7, ..Job::default() });
    }

    #[test]
    fn messages_name_the_field() {
        assert_eq!(
            message(2, "soon"),
            "field 2 (submit time) is 'soon', not a number such as 12 or 12.5"
        );
        assert_eq!(
            message(4, "-3"),
            "field 4 (run time) is '-3'; the only negative number is -1, for not known"
        );
        assert_eq!(
            message(8, "1.5"),
            "field 8 (requested processors) is '1.5', but must be a whole number"
        );
        assert_eq!(
            message(5, "4294967296"),
            "field 5 (allocated processors) is '4294967296', which is too much"
        );
        assert_eq!(message(11, "6"), "field 11 (status) is '6', but must be 0 to 5, or -1");
        assert_eq!(message(1, "-1"), "the job has no number (field 1 is -1)");
        let long = "\u{1b}".repeat(1000);
        assert!(message(9, &long).len() < 300, "{}", message(9, &long));
        assert_eq!(
            strict("1 2 3").unwrap_err().to_string(),
            "3 fields instead of 18 (a field that is not known is -1)"
        );
    }

    #[test]
    fn a_lenient_reader_mends_and_counts() {
        let mut tolerated = Tally::default();
        let line = b"1 -5 3 4 5.5 6 7 8 9 10 77 12 13 14 15 16 17 18 19";
        let job = job_of_line(line, Tolerance::Lenient, &mut tolerated).unwrap();
        assert_eq!((job.submit_ns, job.allocated_processors, job.status), (None, Some(5), None));
        let expected = [
            (Tolerated::TooManyFields, 1),
            (Tolerated::NotWhole, 1),
            (Tolerated::Negative, 1),
            (Tolerated::UnknownStatus, 1),
        ];
        assert_eq!(tolerated.iter().collect::<Vec<_>>(), expected);
    }
}
