//! A job and its front end: output that goes there, input that comes from there.

mod handover;

use super::context::Context;
use super::job::{Job, Phase, Task};
use super::outlet::{Outlet, Pumped, UNSENT_BYTES_HIGH, UNSENT_BYTES_LOW, read_once};
use super::stdio::{INPUT_BYTES_MAX, InputState, Reader};
use super::viewers::{Viewer, show};
use super::watch::{Event, Token, Watch};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use tracing::warn;
use tutti_node::link::{Interest, Link};
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{Rank, TaskStatus};
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};
use tutti_wire::code::Code;
use tutti_wire::usage::CarriedBytes;

/// How often one round of the loop fills a front end's outlet, so that a fast reader does not keep
/// the keeper from other jobs.
const FILLS_PER_ROUND: u32 = 8;

/// A front end on another node may be away for so long, and go on where it was.
const AWAY_NS: u64 = 120_000_000_000;

const UNREACHABLE: &str = "the node whose process writes the output files is out of reach";

/// An attached front end.
pub(super) struct Front {
    /// Nothing while the way to it is broken.
    link: Option<(Link, Token)>,
    pub(super) outlet: Outlet,
    interest: Interest,
    /// How many of its messages were taken in.
    heard: u64,
    /// Until when it may come back, while it is away.
    away_until_ns: Option<u64>,
    /// It has got everything.
    is_done: bool,
}

/// What reads the output of a job: its front end, and viewers.
#[derive(Default)]
pub(super) struct Readers {
    pub(super) front: Option<Front>,
    /// What else sees the output.
    pub(super) viewers: Vec<Viewer>,
    /// Streams that wait for room in the front end's outlet, in turn.
    parked: VecDeque<(usize, Stream)>,
    /// How many tasks' ends and outputs were not put into the front end's outlet completely.
    undelivered: usize,
}

impl Readers {
    /// Those of a job with so many tasks, of which none has ended.
    pub(super) fn of(tasks: usize) -> Self {
        Self { undelivered: tasks, ..Self::default() }
    }

    /// Those of a job that another program has had. Viewers have to come again.
    pub(super) fn of_before(
        front: Option<Front>,
        parked: VecDeque<(usize, Stream)>,
        undelivered: usize,
    ) -> Self {
        Self { front, viewers: Vec::new(), parked, undelivered }
    }

    /// Streams that wait for room in the front end's outlet, in turn.
    pub(super) fn parked(&self) -> impl Iterator<Item = (usize, Stream)> {
        self.parked.iter().copied()
    }

    /// How many tasks' ends and outputs were not put into the front end's outlet completely.
    pub(super) const fn undelivered(&self) -> usize {
        self.undelivered
    }

    /// Whether the ends of all tasks, and all their output, were put into the front end's outlet.
    pub(super) const fn have_all(&self) -> bool {
        self.undelivered == 0
    }

    /// Whether all output has been taken by the kernel, or there is no front end.
    pub(super) fn are_served(&self) -> bool {
        self.front.as_ref().is_none_or(|front| front.is_idle() && self.have_all())
    }

    /// Whether the front end has too much to read already.
    fn are_behind(&self) -> bool {
        self.front.as_ref().is_some_and(Front::is_behind)
    }

    /// A stream waits for room no more.
    fn forget_parked(&mut self, index: usize, stream: Stream) {
        self.parked.retain(|parked| *parked != (index, stream));
    }

    /// The end of a task, which has written all, goes to the front end.
    fn deliver(&mut self, task: &mut Task) {
        self.undelivered -= 1;
        task.delivered = true;
        if let Some(front) = &mut self.front {
            front.outlet.send(&end_of(task));
            if self.undelivered == 0 {
                front.outlet.send(&ToFrontEnd::Finished);
            }
        }
    }
}

impl Front {
    /// Whether everything was written.
    pub(super) fn is_idle(&self) -> bool {
        self.outlet.unsent() == 0 && (self.is_done || !self.outlet.is_kept())
    }

    /// Until when it may come back, if it is away.
    pub(super) const fn away_until_ns(&self) -> Option<u64> {
        self.away_until_ns
    }

    fn is_behind(&self) -> bool {
        self.outlet.unsent() > UNSENT_BYTES_HIGH
    }

    /// Whether enough has been read to go on reading from tasks.
    fn has_room(&self) -> bool {
        self.outlet.unsent() <= UNSENT_BYTES_LOW
    }
}

impl Job {
    /// A front end of the job's owner is here. Tasks that waited for it start; of those that have
    /// ended it hears at once.
    pub(super) fn attach(
        &mut self,
        link: Link,
        token: Token,
        (mut outlet, received): (Outlet, Option<u64>),
        context: &mut Context,
    ) {
        let former = self.readers.front.take();
        let heard = former.as_ref().map_or(0, |former| former.heard);
        outlet.send(&ToFrontEnd::Attached { heard });
        if let Some(former) = former {
            if let Some((link, token)) = &former.link {
                context.watches.remove(link, *token);
            }
            outlet.go_on(&former.outlet, received.unwrap_or_default());
        } else {
            if received.is_some() {
                outlet.keep();
            }
            for task in self.tasks.iter().filter(|task| task.delivered) {
                outlet.send(&end_of(task));
            }
            if self.readers.have_all() {
                outlet.send(&ToFrontEnd::Finished);
            }
        }
        context.watches.rename(token, Watch::Front(self.key()));
        let (link, interest) = (Some((link, token)), Interest::NONE);
        self.readers.front =
            Some(Front { link, outlet, interest, heard, away_until_ns: None, is_done: false });
        context.touched.insert(self.key());
        self.start(context);
        // Input may have come with the request to attach.
        self.take_input(context);
    }

    /// Why a front end that has got so far can't have the job, if it can't.
    pub(super) fn objection_to_front(&self, received: Option<u64>) -> Option<&'static str> {
        let written = self.launch.written();
        if !self.has_front_end() || written.is_here() || (written.any() && received.is_none()) {
            return Some("the job writes its output to files");
        }
        if self.output_files.failure().is_some() {
            return Some("the output of the job is closed");
        }
        match (&self.readers.front, received) {
            (None, None | Some(0)) => None,
            (None, Some(_)) => Some("what is not shown yet of its output is not kept any more"),
            // The way to it may have broken, and only it knows that.
            (Some(front), Some(received)) if front.outlet.is_kept() => {
                let goes_on = Outlet::new().go_on(&front.outlet, received);
                (!goes_on).then_some("what is not shown yet of its output is not kept any more")
            }
            (Some(_), _) => Some("another front end is attached to the job"),
        }
    }

    /// Something happened on the front end's connection.
    pub(super) fn on_front(&mut self, event: Event, context: &mut Context) {
        context.touched.insert(self.key());
        if !event.read {
            return;
        }
        let Some(Front { link: Some((link, _)), .. }) = &mut self.readers.front else { return };
        let received = link.receive();
        self.take_input(context);
        if received.is_err() {
            self.lose_front(context);
        }
    }

    /// A task has written something.
    pub(super) fn on_output(&mut self, index: usize, stream: Stream, context: &mut Context) {
        if self.readers.are_behind() {
            self.park(index, stream, context);
            return;
        }
        self.pump(index, stream, context);
        self.deliver_end(index, context);
        context.touched.insert(self.key());
    }

    /// A task reads its input.
    pub(super) fn on_input(&mut self, index: usize, context: &mut Context) {
        self.write_input(index, context);
        self.take_input(context);
        context.touched.insert(self.key());
    }

    /// Once a round: writes what waits, reads what was parked if there is room for it.
    pub(super) fn settle_front(&mut self, context: &mut Context) {
        for _ in 0..FILLS_PER_ROUND {
            let Some(front) = &mut self.readers.front else { return };
            let Some((link, _)) = &front.link else { return };
            if front.outlet.flush(link.stream()).is_err() {
                self.lose_front(context);
                return;
            }
            if !front.has_room() || self.readers.parked.is_empty() {
                break;
            }
            self.fill(context);
        }
        // What has been received waits for nothing but room at the tasks' inputs.
        self.take_input(context);
        let blocked = self.is_input_blocked();
        let Some(front) = &mut self.readers.front else { return };
        let Some((link, token)) = &front.link else { return };
        let write = front.outlet.unsent() > 0 || !self.readers.parked.is_empty();
        let interest = Interest { read: !blocked, write };
        if interest != front.interest {
            front.interest = interest;
            context.watches.modify(link, *token, interest);
        }
    }

    /// Reads parked streams in turn until the outlet is full again.
    fn fill(&mut self, context: &mut Context) {
        while !self.readers.are_behind()
            && let Some((index, stream)) = self.readers.parked.pop_front()
        {
            match self.pump(index, stream, context) {
                Pumped::Full => self.readers.parked.push_back((index, stream)),
                Pumped::Part | Pumped::Dry => {
                    if let Some(pipe) = self.tasks[index].stream(stream) {
                        pipe.watch(&mut context.watches);
                    }
                }
                Pumped::End => {}
            }
            self.deliver_end(index, context);
        }
    }

    fn park(&mut self, index: usize, stream: Stream, context: &mut Context) {
        if let Some(pipe) = self.tasks[index].stream(stream)
            && pipe.park(&mut context.watches)
        {
            self.readers.parked.push_back((index, stream));
        }
    }

    /// Reads once from a task and hands it on, or throws it away without a front end.
    fn pump(&mut self, index: usize, stream: Stream, context: &mut Context) -> Pumped {
        let task = &mut self.tasks[index];
        let rank = task.rank;
        let Some(pipe) = task.stream(stream) else { return Pumped::End };
        let (count, pumped) = match &mut self.readers.front {
            Some(front) => {
                let (count, pumped) = front.outlet.pump(rank, stream, pipe.file(), pipe.want());
                if count > 0 {
                    show(&mut self.readers.viewers, rank, stream, front.outlet.latest(count));
                }
                (count, pumped)
            }
            None => {
                let (count, pumped) = read_once(pipe.file(), &mut context.scratch);
                if count > 0 {
                    show(&mut self.readers.viewers, rank, stream, &context.scratch[..count]);
                }
                (count, pumped)
            }
        };
        pipe.learn(pumped);
        context.carried.add(CarriedBytes { input: 0, output: count as u64 });
        if count > 0 && !self.readers.viewers.is_empty() {
            context.touched.insert(self.key());
        }
        if pumped == Pumped::End {
            self.close_stream(index, stream, context);
        }
        pumped
    }

    fn close_stream(&mut self, index: usize, stream: Stream, context: &mut Context) {
        let rank = self.tasks[index].rank;
        if self.drop_stream(index, stream, context) {
            if let Some(front) = &mut self.readers.front {
                front.outlet.end_of_stream(rank, stream);
            }
            self.show_end_of_stream(rank, stream);
        }
    }

    /// Closes our end of a stream; says whether there was one.
    pub(super) fn drop_stream(
        &mut self,
        index: usize,
        stream: Stream,
        context: &mut Context,
    ) -> bool {
        let Some(pipe) = self.tasks[index].stream(stream).take() else { return false };
        pipe.close(&mut context.watches);
        self.readers.forget_parked(index, stream);
        true
    }

    /// Once nothing of a task is left, what lies in its pipes is all that will come: hands it on as
    /// far as there is room, and when it is all gone, the task's end.
    pub(super) fn deliver_end(&mut self, index: usize, context: &mut Context) {
        if !self.tasks[index].has_ended() || self.tasks[index].delivered {
            return;
        }
        if self.has_spawner(index) {
            // What it writes comes by the same way.
            return;
        }
        for stream in [Stream::Output, Stream::Error] {
            while let Some(pipe) = self.tasks[index].stream(stream) {
                match pipe.reader() {
                    Reader::Us => {}
                    Reader::Nobody => return,
                    Reader::FrontEnd => {
                        self.drop_stream(index, stream, context);
                        break;
                    }
                }
                if self.readers.are_behind() {
                    self.park(index, stream, context);
                    return;
                }
                if self.pump(index, stream, context) == Pumped::Dry {
                    // A process outside the task holds it open; but the task has ended.
                    self.close_stream(index, stream, context);
                }
            }
        }
        self.hang_up(index, context);
        context.touched.insert(self.key());
        self.readers.deliver(&mut self.tasks[index]);
        self.show_end(index, context);
    }

    /// The connection broke. A front end on another node may come back: until then it counts as one
    /// that does not read.
    fn lose_front(&mut self, context: &mut Context) {
        let is_kept = |front: &&mut Front| front.outlet.is_kept() && !front.is_done;
        let Some(front) = self.readers.front.as_mut().filter(is_kept) else {
            return self.drop_front(context);
        };
        if let Some((link, token)) = front.link.take() {
            context.watches.remove(&link, token);
        }
        front.away_until_ns = Some(monotonic_ns() + AWAY_NS);
    }

    /// Until when the front end may be away, or the writer on another node may take to attach.
    pub(super) fn front_due_ns(&self) -> Option<u64> {
        match &self.readers.front {
            Some(front) => front.away_until_ns,
            None => self.output_files.until_ns().filter(|_| !self.life.has_started()),
        }
    }

    /// From now on a writer on another node has some time to attach.
    pub(super) fn await_writer(&mut self) {
        if self.launch.written().is_far {
            self.output_files.await_writer(monotonic_ns() + AWAY_NS);
        }
    }

    /// A front end that has been away for too long will not come back.
    pub(super) fn give_up_front(&mut self, now_ns: u64, context: &mut Context) {
        if self.front_due_ns().is_some_and(|until_ns| until_ns <= now_ns) {
            match self.launch.written().is_far {
                true => self.fail_output(UNREACHABLE.into(), context),
                false => self.drop_front(context),
            }
        }
    }

    /// No process writes the output any more: tasks that write get an error.
    pub(super) fn close_output(&mut self, context: &mut Context) {
        self.drop_front(context);
        for index in 0..self.tasks.len() {
            for stream in [Stream::Output, Stream::Error] {
                self.drop_stream(index, stream, context);
            }
            self.deliver_end(index, context);
        }
    }

    /// The front end is gone: the tasks' output is thrown away from now on, and their input ends.
    fn drop_front(&mut self, context: &mut Context) {
        let Some(front) = self.readers.front.take() else { return };
        if let Some((link, token)) = &front.link {
            context.watches.remove(link, *token);
        }
        context.touched.insert(self.key());
        for (index, stream) in std::mem::take(&mut self.readers.parked) {
            if let Some(pipe) = self.tasks[index].stream(stream) {
                pipe.watch(&mut context.watches);
            }
        }
        for index in 0..self.tasks.len() {
            self.hang_up(index, context);
            for stream in [Stream::Output, Stream::Error] {
                if let Some(pipe) = self.tasks[index].stream(stream) {
                    pipe.take_back(&mut context.watches);
                }
            }
            if let Some(input) = self.tasks[index].input.take() {
                input.close(&mut context.watches);
            }
            self.deliver_end(index, context);
        }
    }

    /// Lets go of the front end of a job that is over.
    pub(super) fn detach(&mut self, context: &mut Context) {
        if let Some((link, token)) = self.readers.front.take().and_then(|front| front.link) {
            context.watches.remove(&link, token);
        }
    }

    /// Has the front end read a stream itself from now on.
    fn pass_pipe(&mut self, rank: Rank, stream: Stream, context: &mut Context) {
        let Some(index) = self.tasks.iter().position(|task| task.rank == rank) else { return };
        let Some(front) = &mut self.readers.front else { return };
        if self.tasks[index].terminal.is_some() {
            // What would be opened again is another terminal.
            return;
        }
        let Some(pipe) = self.tasks[index].stream(stream) else { return };
        // Where it can't be opened again, it is read as before; viewers see only what we read.
        if pipe.reader() == Reader::Us
            && self.readers.viewers.is_empty()
            && let Ok(another) = pipe.open_again()
        {
            front.outlet.send_pipe(rank, stream, another);
            pipe.leave_to(Reader::Nobody, &mut context.watches);
            self.readers.forget_parked(index, stream);
        }
    }

    /// A pipe has arrived at the front end, or has not.
    fn on_passed(&mut self, rank: Rank, stream: Stream, reader: Reader, context: &mut Context) {
        let Some(index) = self.tasks.iter().position(|task| task.rank == rank) else { return };
        let Some(pipe) = self.tasks[index].stream(stream) else { return };
        // One that has arrived may also come back.
        if pipe.reader() == Reader::Nobody || reader == Reader::Us {
            match reader {
                Reader::Us => pipe.take_back(&mut context.watches),
                other => pipe.leave_to(other, &mut context.watches),
            }
            self.deliver_end(index, context);
        }
    }

    pub(super) fn is_input_blocked(&self) -> bool {
        self.tasks
            .iter()
            .filter_map(|task| task.input.as_ref())
            .any(|input| input.pending_bytes() > INPUT_BYTES_MAX)
    }

    /// Hands on the input that has arrived, unless a task is too far behind.
    fn take_input(&mut self, context: &mut Context) {
        while !self.is_input_blocked()
            && let Some(Front { link: Some((link, _)), heard, is_done, .. }) =
                &mut self.readers.front
        {
            let said = link.next();
            if matches!(said, Ok(Some(_))) {
                *heard += 1;
            }
            match said {
                Ok(Some(FromFrontEnd::Done)) => {
                    *is_done = true;
                    context.touched.insert(self.key());
                }
                Ok(Some(FromFrontEnd::Input { rank, data })) => {
                    self.feed(rank, &Rc::new(data.into_vec()), context);
                }
                Ok(Some(FromFrontEnd::GiveUp { reason, .. })) if self.launch.written().any() => {
                    self.fail_output(reason, context);
                }
                Ok(Some(FromFrontEnd::Progress)) => self.output_files.note_progress(),
                Ok(Some(FromFrontEnd::OutputLost { what })) => self.lose_output(what, context),
                Ok(None) => return,
                Ok(Some(FromFrontEnd::Resize { size })) => self.resize(size),
                Ok(Some(FromFrontEnd::WantPipe { rank, stream })) => {
                    self.pass_pipe(rank, stream, context);
                }
                Ok(Some(FromFrontEnd::PipeTaken { rank, stream })) => {
                    self.on_passed(rank, stream, Reader::FrontEnd, context);
                }
                Ok(Some(FromFrontEnd::PipeLost { rank, stream })) => {
                    self.on_passed(rank, stream, Reader::Us, context);
                }
                Ok(Some(
                    FromFrontEnd::Attach { .. }
                    | FromFrontEnd::GiveUp { .. }
                    | FromFrontEnd::Watch { .. },
                )) => {
                    self.refuse_front("a connection attaches once", context);
                }
                Err(error) => self.refuse_front(&error.to_string(), context),
            }
        }
    }

    fn refuse_front(&mut self, why: &str, context: &mut Context) {
        warn!(code = %Code::NotUnderstood, "dropped the front end of job {}: {why}", self.launch.job);
        if self.launch.written().any() {
            return self.fail_output(format!("the process that writes the output: {why}"), context);
        }
        self.drop_front(context);
    }

    pub(super) fn feed(&mut self, rank: Option<Rank>, data: &Rc<Vec<u8>>, context: &mut Context) {
        for index in 0..self.tasks.len() {
            let data = self.typed(index, data);
            let task = &mut self.tasks[index];
            if rank.is_none_or(|rank| rank == task.rank)
                && let Some(input) = &mut task.input
            {
                input.push(&data);
                self.write_input(index, context);
            }
        }
    }

    fn write_input(&mut self, index: usize, context: &mut Context) {
        let slot = &mut self.tasks[index].input;
        let Some(input) = slot else { return };
        let waited = input.pending_bytes();
        let state = input.write(&mut context.watches);
        let written = waited.saturating_sub(input.pending_bytes());
        context.carried.add(CarriedBytes { input: written as u64, output: 0 });
        if state == InputState::Closed
            && let Some(input) = slot.take()
        {
            input.close(&mut context.watches);
        }
    }
}

/// What a front end hears of a task that has ended.
pub(super) fn end_of(task: &Task) -> ToFrontEnd {
    let (status, detail) = match &task.phase {
        Phase::Ended { status, detail } => (*status, detail.clone()),
        _ => (TaskStatus::Lost, "the keeper lost count of it".into()),
    };
    ToFrontEnd::TaskEnded { rank: task.rank, status, detail }
}

/// The last answer to a connection.
pub(super) fn answer(link: &Link, mut outlet: Outlet, answer: &ToFrontEnd) -> io::Result<()> {
    outlet.send(answer);
    // So little always fits into a fresh socket.
    outlet.flush(link.stream())
}
