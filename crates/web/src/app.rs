//! What all requests share: the instance, the threads that ask it, and answers that are fresh.

use crate::auth::Gate;
use crate::events::Hub;
use crate::limits::{ANSWER_FRESH, ANSWERS_MAX, QUESTIONS_MAX, READERS_MAX};
use crate::source::{Answer, Failure, Source};
use axum::body::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tutti_wire::code::Code;

/// What all requests share.
pub(crate) struct App {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) hub: Arc<Hub>,
    /// Whether requests come through a Unix socket, whose peer the kernel names.
    pub(crate) is_unix: bool,
    /// Called when the token was used.
    pub(crate) on_session: Box<dyn Fn() + Send + Sync>,
    questions: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    answers: Mutex<BTreeMap<String, Arc<Fresh>>>,
}

/// An answer with its time; held while the instance is asked, so that it is asked once.
type Fresh = tokio::sync::Mutex<Option<(Instant, Bytes)>>;

impl App {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        gate: Arc<Gate>,
        hub: Arc<Hub>,
        is_unix: bool,
        on_session: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            source,
            gate,
            hub,
            is_unix,
            on_session,
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            answers: Mutex::default(),
        }
    }

    /// A place among the readers of streams.
    pub(crate) fn reader(&self) -> Answer<OwnedSemaphorePermit> {
        Arc::clone(&self.readers).try_acquire_owned().map_err(|_| {
            let text = format!("{READERS_MAX} streams are open, which is the maximum; close some");
            Failure::new(Code::TooMuchAsked, text)
        })
    }

    /// Asks the instance, in a thread.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Source) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let source = Arc::clone(&self.source);
        self.in_thread(move || question(&*source)).await
    }

    /// Does what may block in a thread.
    pub(crate) async fn in_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let place = Arc::clone(&self.questions).try_acquire_owned().map_err(|_| {
            let text = format!("{QUESTIONS_MAX} requests wait for the instance already; try again");
            Failure::new(Code::TooMuchAsked, text)
        })?;
        let work = move || {
            let _place = place;
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(Failure::new(Code::Other, error)))
    }

    /// The answer to a question that several readers ask; `key` names it.
    pub(crate) async fn fresh(
        &self,
        key: String,
        question: impl FnOnce(&dyn Source) -> Answer<String> + Send + 'static,
    ) -> Answer<Bytes> {
        let place = self.place_of(key);
        let mut kept = place.lock().await;
        if let Some((at, answer)) = &*kept
            && at.elapsed() < ANSWER_FRESH
        {
            return Ok(answer.clone());
        }
        // The time before the question: the answer is not older.
        let at = Instant::now();
        let answer = Bytes::from(self.ask(question).await?);
        *kept = Some((at, answer.clone()));
        Ok(answer)
    }

    fn place_of(&self, key: String) -> Arc<Fresh> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS_MAX && !answers.contains_key(&key) {
            answers.clear();
        }
        Arc::clone(answers.entry(key).or_default())
    }
}
