//! The comment lines before the first job: `; Name: value`.
//!
//! The lines themselves are kept, byte for byte and in order, and the writer puts them out as they
//! came: the donors of a log are named there, and must stay. What they say is read from them when
//! asked. Bytes that are no UTF-8 are Latin-1, as in the archive's older logs.

use crate::number::Decimal;

/// The head of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Each line without its end, the `;` included.
    lines: Vec<Vec<u8>>,
}

/// One `Name: value` of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// What stands before the colon.
    pub name: String,
    /// What stands behind it; lines that go on below are joined by line ends.
    pub value: String,
}

/// Whether jobs can be taken off their processors on the machine of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// Never.
    No,
    /// They can; each job is one line.
    Yes,
    /// They can; each job is a line that sums it up and a line for each burst.
    Double,
    /// Processors are shared by time slicing.
    TimeSlicing,
}

/// Names that are directives even where they are indented like a line that goes on.
const NAMES: [&str; 26] = [
    "Version",
    "Computer",
    "Installation",
    "Acknowledge",
    "Information",
    "Conversion",
    "Copyright",
    "MaxJobs",
    "MaxRecords",
    "Preemption",
    "UnixStartTime",
    "TimeZone",
    "TimeZoneString",
    "StartTime",
    "EndTime",
    "MaxNodes",
    "MaxProcs",
    "MaxRuntime",
    "MaxMemory",
    "AllowOveruse",
    "MaxQueues",
    "Queues",
    "Queue",
    "MaxPartitions",
    "Partition",
    "Note",
];

impl Header {
    /// A header of these directives, for a trace of one's own.
    #[must_use]
    pub fn of(directives: &[(&str, &str)]) -> Header {
        let mut header = Header::default();
        for (name, value) in directives {
            header.add(name, value);
        }
        header
    }

    /// Adds a directive at the end. Further lines of its value are indented.
    pub fn add(&mut self, name: &str, value: &str) {
        let mut begin = format!("; {}:", name.replace(['\n', ':'], " "));
        for part in value.split('\n') {
            self.lines.push(format!("{begin} {part}").trim_end().into());
            begin = "; ".to_owned() + &" ".repeat(name.len() + 1);
        }
    }

    /// Adds a line as it stands in a file.
    pub(crate) fn add_line(&mut self, line: &[u8]) {
        self.lines.push(line.to_owned());
    }

    /// All lines as they stand in the file, without their ends.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(Vec::as_slice)
    }

    /// All directives, known or not, in their order.
    #[must_use]
    pub fn directives(&self) -> Vec<Directive> {
        let mut directives: Vec<Directive> = Vec::new();
        for line in &self.lines {
            let text = text_of(line);
            let text = text.trim_start().trim_start_matches(';');
            if let Some((name, value)) = directive_of(text) {
                directives.push(Directive { name: name.to_owned(), value: value.to_owned() });
            } else if let Some(last) = directives.last_mut()
                && !text.trim().is_empty()
            {
                last.value.push('\n');
                last.value.push_str(text.trim());
            }
        }
        directives
    }

    /// The value of the first directive with this name (upper and lower case count).
    #[must_use]
    pub fn value(&self, name: &str) -> Option<String> {
        self.directives().into_iter().find(|it| it.name == name).map(|it| it.value)
    }

    /// The number at the beginning of a directive's value, cut to a whole one; None if it is
    /// negative, which stands for not known.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let value = self.value(name)?;
        let word = value.split([' ', '\t', '\n', ',', ';', '(']).next()?;
        let number = Decimal::parse(word.as_bytes()).ok()?;
        (!number.is_below_zero()).then_some(number.whole)
    }

    /// `Version`: the format's, such as 2.2.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        self.value("Version")
    }

    /// `Computer`: make and model.
    #[must_use]
    pub fn computer(&self) -> Option<String> {
        self.value("Computer")
    }

    /// `Installation`: where it stands.
    #[must_use]
    pub fn installation(&self) -> Option<String> {
        self.value("Installation")
    }

    /// `Acknowledge`: the donor of the log, to be thanked.
    #[must_use]
    pub fn acknowledge(&self) -> Option<String> {
        self.value("Acknowledge")
    }

    /// `MaxJobs`: jobs in the whole log; a cut one has fewer.
    #[must_use]
    pub fn max_jobs(&self) -> Option<u64> {
        self.number("MaxJobs")
    }

    /// `MaxRecords`: lines in the whole log, bursts included.
    #[must_use]
    pub fn max_records(&self) -> Option<u64> {
        self.number("MaxRecords")
    }

    /// `Preemption`.
    #[must_use]
    pub fn preemption(&self) -> Option<Preemption> {
        match self.value("Preemption")?.trim().to_ascii_lowercase().as_str() {
            "no" => Some(Preemption::No),
            "yes" => Some(Preemption::Yes),
            "double" => Some(Preemption::Double),
            "ts" => Some(Preemption::TimeSlicing),
            _ => None,
        }
    }

    /// `UnixStartTime`: the log's beginning, in seconds since 1970. Submit times count from here.
    #[must_use]
    pub fn unix_start_time_s(&self) -> Option<u64> {
        self.number("UnixStartTime")
    }

    /// `TimeZoneString`: such as Europe/Stockholm. (`TimeZone`, an older number, is known to be
    /// wrong in places.)
    #[must_use]
    pub fn time_zone(&self) -> Option<String> {
        self.value("TimeZoneString")
    }

    /// `MaxNodes`.
    #[must_use]
    pub fn max_nodes(&self) -> Option<u64> {
        self.number("MaxNodes")
    }

    /// `MaxProcs`.
    #[must_use]
    pub fn max_procs(&self) -> Option<u64> {
        self.number("MaxProcs")
    }

    /// The machine's size in processors: `MaxProcs`, else `MaxNodes`.
    #[must_use]
    pub fn machine_processors(&self) -> Option<u32> {
        let usable = |count: u64| u32::try_from(count).ok().filter(|&count| count > 0);
        self.max_procs().and_then(usable).or_else(|| self.max_nodes().and_then(usable))
    }

    /// `Queue: n name`: each queue's number and name, in their order.
    #[must_use]
    pub fn queues(&self) -> Vec<(u64, String)> {
        self.numbered("Queue")
    }

    /// `Partition: n name`: each partition's number and name, in their order.
    #[must_use]
    pub fn partitions(&self) -> Vec<(u64, String)> {
        self.numbered("Partition")
    }

    /// Every `Note`.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.directives().into_iter().filter(|it| it.name == "Note").map(|it| it.value).collect()
    }

    fn numbered(&self, name: &str) -> Vec<(u64, String)> {
        let numbered = |directive: Directive| {
            let first = directive.value.lines().next()?;
            let (number, rest) = first.split_once([' ', '\t']).unwrap_or((first, ""));
            Some((number.parse().ok()?, rest.trim().to_owned()))
        };
        let directives = self.directives().into_iter();
        directives.filter(|directive| directive.name == name).filter_map(numbered).collect()
    }
}

/// Name and value, if a comment (without its `;`) is a directive. One that is indented by more than
/// a blank goes on with the value above, unless its name is a known one.
fn directive_of(text: &str) -> Option<(&str, &str)> {
    let indent = text.len() - text.trim_start().len();
    let (name, value) = text.trim_start().split_once(':')?;
    let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_' || it == '-');
    let is_address = value.starts_with("//");
    let is_directive = is_word && !is_address && (indent <= 1 || NAMES.contains(&name));
    is_directive.then(|| (name, value.trim()))
}

/// The text of a line: UTF-8, or else Latin-1, in which every byte is the character of its number.
fn text_of(line: &[u8]) -> String {
    match std::str::from_utf8(line) {
        Ok(text) => text.to_owned(),
        Err(_) => line.iter().map(|&byte| char::from(byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &[u8]) -> Header {
        let mut header = Header::default();
        for line in text.split(|&byte| byte == b'\n') {
            header.add_line(line);
        }
        header
    }

    #[test]
    fn values_go_on_in_indented_lines() {
        let header = header(
            b"; Information: http://www.example.org/\n\
              ;              http://www.example.org/labs/\n\
              ;\n\
              ; Copyright: Usage Agreement:\n\
              ;   This is: the text",
        );
        let expected = [
            ("Information", "http://www.example.org/\nhttp://www.example.org/labs/"),
            ("Copyright", "Usage Agreement:\nThis is: the text"),
        ];
        let directives = header.directives();
        let pairs: Vec<_> = directives.iter().map(|it| (&*it.name, &*it.value)).collect();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn the_known_directives() {
        let header = header(
            b";Version: 2.2\n; Computer: IBM SP2\n; Acknowledge: \xc5ke Sandgren\n\
              ; Preemption: TS\n; UnixStartTime: 843480031 (about)\n; MaxNodes: 100\n\
              ; MaxProcs: -1\n; Queue:  0  interactive  \n; Queue: 1\n; Queue: none\n\
              ; Site: ours\n; Note: one\n; Note: two",
        );
        assert_eq!(header.version().unwrap(), "2.2");
        assert_eq!(header.computer().unwrap(), "IBM SP2");
        assert_eq!(header.acknowledge().unwrap(), "\u{c5}ke Sandgren");
        assert_eq!(header.preemption(), Some(Preemption::TimeSlicing));
        assert_eq!(header.unix_start_time_s(), Some(843_480_031));
        assert_eq!(header.max_procs(), None);
        assert_eq!(header.machine_processors(), Some(100));
        assert_eq!(header.queues(), [(0, "interactive".to_owned()), (1, String::new())]);
        assert_eq!(header.value("Site").unwrap(), "ours");
        assert_eq!(header.notes(), ["one", "two"]);
        assert_eq!(header.installation(), None);
    }

    #[test]
    fn what_is_added_is_read_back() {
        let made = Header::of(&[("Computer", "T3D"), ("Note", "first\nsecond")]);
        let lines: Vec<_> = made.lines().map(text_of).collect();
        assert_eq!(lines, ["; Computer: T3D", "; Note: first", ";       second"]);
        assert_eq!(made.notes(), ["first\nsecond"]);
    }
}
