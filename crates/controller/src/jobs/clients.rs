//! The clients that wait for something of a job, by their connections.

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Clients {
    /// Its front end, which must hear where its output is.
    front: Option<u64>,
    /// Whether a front end may have heard that, also from an earlier controller.
    has_told_front: bool,
    /// Whether its front end has yet to be answered that it is accepted.
    is_unanswered: bool,
    /// Those that wait for its end.
    end: Vec<u64>,
    /// Those that wait until a task of it has begun, or for its end.
    begin: Vec<u64>,
    /// Those that wait for what becomes of a request to save its state.
    checkpoint: Vec<u64>,
}

impl Clients {
    /// Those of a job that is accepted now: the front end is to be answered that.
    pub(crate) fn of_new(front: Option<u64>) -> Self {
        Self { front, is_unanswered: front.is_some(), ..Self::default() }
    }

    /// Those of a job of an earlier controller: none is here again yet.
    pub(crate) fn of_before(has_told_front: bool) -> Self {
        Self { has_told_front, ..Self::default() }
    }

    pub(crate) const fn front(&self) -> Option<u64> {
        self.front
    }

    /// Its front end is back.
    pub(crate) const fn meet_front(&mut self, token: u64) {
        self.front = Some(token);
    }

    /// Its front end is gone.
    pub(crate) const fn lose_front(&mut self) {
        self.front = None;
    }

    /// Its front end is answered that it is accepted.
    pub(crate) const fn note_answer(&mut self) {
        self.is_unanswered = false;
    }

    /// Whether its front end has yet to be answered that it is accepted.
    pub(crate) const fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }

    /// Its front end hears where its output is.
    pub(crate) const fn note_told(&mut self) {
        self.has_told_front = true;
    }

    /// Whether a front end may have heard where its output is.
    pub(crate) const fn has_told_front(&self) -> bool {
        self.has_told_front
    }

    /// A client waits for its end.
    pub(crate) fn await_end(&mut self, token: u64) {
        self.end.push(token);
    }

    /// A client waits until a task of it has begun, or for its end.
    pub(crate) fn await_begin(&mut self, token: u64) {
        self.begin.push(token);
    }

    /// A client waits for what becomes of a request to save its state.
    pub(crate) fn await_checkpoint(&mut self, token: u64) {
        self.checkpoint.push(token);
    }

    /// A task of it has begun: the clients that waited for that, and wait no more.
    pub(crate) fn take_begin(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.begin)
    }

    /// It is known what became of a request: the clients that waited for that, and wait no more.
    pub(crate) fn take_checkpoint(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.checkpoint)
    }

    /// Forgets those that wait over a connection that is gone.
    pub(crate) fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        for waiting in [&mut self.end, &mut self.begin, &mut self.checkpoint] {
            waiting.retain(|&token| is_there(token));
        }
    }

    /// It has ended: all that are to hear of it, its front end first.
    pub(crate) fn into_all(self) -> impl Iterator<Item = u64> {
        let waiting = self.end.into_iter().chain(self.checkpoint).chain(self.begin);
        self.front.into_iter().chain(waiting)
    }
}
