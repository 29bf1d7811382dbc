//! What clients of PMI-2 ask for. They share barriers, values, names and spawns with those of
//! PMI-1: both may be in one job.

use super::{
    Answer, BARRIERS_PER_TASK_MAX, Effect, Names, STORE_BYTES_MAX, Server, TaskState, Unstored,
    entry_bytes, spawn_reason,
};
use crate::pmi::line::PmiError;
use crate::pmi::names::NameError;
use crate::pmi::second::{Message, Question, Response};
use crate::pmi::spawn::{Collected, Spawning};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What a server keeps of its clients of PMI-2.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Second {
    /// Values that the tasks of this node have for each other.
    of_node: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Tasks that wait for such a value.
    waits: Vec<Wait>,
}

/// A task that waits for a value of its node.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wait {
    task: usize,
    question: Question,
    key: Vec<u8>,
}

impl Second {
    /// Whether a task waits for something.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waits.is_empty()
    }

    /// What it takes, about.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let values = self.of_node.iter().map(|(key, value)| entry_bytes(key, value));
        values.chain(self.waits.iter().map(|wait| entry_bytes(&wait.key, &[]))).sum()
    }

    /// A task begins anew. Gives what its waits took, in bytes.
    pub(super) fn forget(&mut self, task: usize) -> usize {
        let bytes = |wait: &Wait| entry_bytes(&wait.key, &[]);
        let freed = self.waits.iter().filter(|wait| wait.task == task).map(bytes).sum();
        self.waits.retain(|wait| wait.task != task);
        freed
    }
}

/// What a task of PMI-2 has asked and waits for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Asked {
    fence: Option<Question>,
    spawn: Option<Question>,
}

impl Server {
    /// A client of PMI-2 begins: the first line and its answer are those of PMI-1.
    pub(super) fn begin_second(&mut self, task: usize) -> Answer {
        self.leave_barriers(task);
        self.tasks[task].state = TaskState::Begun;
        self.tasks[task].second = Some(Asked::default());
        Answer::done("response_to_init").number("pmi_version", 2u32).number("pmi_subversion", 0u32)
    }

    /// Takes in a message of a client of PMI-2.
    pub(super) fn handle_second(
        &mut self,
        task: usize,
        bytes: &[u8],
        names: &mut Names,
        out: &mut Vec<Effect>,
    ) {
        self.tasks[task].has_spoken = true;
        let answered = Message::read(bytes).and_then(|message| {
            let answer = self.answer_second(task, &message, names, out)?;
            Ok(answer.map(|answer| answer.send(task)))
        });
        match answered {
            Ok(reply) => out.extend(reply),
            Err(error) => out.push(Effect::Close { task, error }),
        }
    }

    /// The answer, unless it comes later or there is none.
    fn answer_second(
        &mut self,
        task: usize,
        message: &Message,
        names: &mut Names,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Response>, PmiError> {
        let question = &message.question;
        let done = || Response::to(question);
        let refused = |reason: &str| Response::refused(question, reason);
        Ok(Some(match question.command.as_str() {
            "fullinit" => self.full_init(task, question),
            "job-getid" => done().text("jobid", &self.space_name),
            "info-getjobattr" => {
                done().found(self.job_value(message.needed("info-getjobattr", "key")?).as_deref())
            }
            "kvs-put" => self.put_second(task, message, out)?,
            "kvs-get" => done().found(self.job_value(message.needed("kvs-get", "key")?).as_deref()),
            "kvs-fence" => {
                let Some(asked) = &mut self.tasks[task].second else { return Ok(None) };
                if asked.fence.is_some() {
                    return Ok(Some(refused("already_in_a_fence")));
                }
                asked.fence = Some(question.clone());
                self.enter(task, None, out);
                return Ok(None);
            }
            "info-putnodeattr" => self.put_of_node(task, message, out)?,
            "info-getnodeattr" => return self.get_of_node(task, message),
            "name-publish" => {
                let name = message.needed("name-publish", "name")?;
                let port = message.needed("name-publish", "port")?;
                match names.publish(self.user, self.job, name, port) {
                    Ok(()) => done(),
                    Err(NameError::Taken) => refused("key_already_present"),
                    Err(NameError::TooLong) => refused("name_is_too_long"),
                    Err(NameError::TooMany) => refused("too_many_names"),
                }
            }
            "name-lookup" => {
                match names.lookup(self.user, message.needed("name-lookup", "name")?) {
                    // Clients differ in where they look.
                    Some(port) => done().text("value", port).text("port", port),
                    None => refused("service_not_found"),
                }
            }
            "name-unpublish" => {
                match names.unpublish(self.user, message.needed("name-unpublish", "name")?) {
                    true => done(),
                    false => refused("service_not_found"),
                }
            }
            "spawn" => return self.spawn_second(task, message, out),
            "abort" => {
                let code = message.number("abort", "exitcode")?.unwrap_or(1);
                let said = message.get("message").or_else(|| message.get("msg"));
                let said = String::from_utf8_lossy(said.unwrap_or_default());
                let message = crate::units::shown(&said);
                out.push(Effect::Abort { task, code, message });
                return Ok(None);
            }
            "finalize" => {
                self.tasks[task].state = TaskState::Finalized;
                out.push(done().send(task));
                out.push(Effect::Finalized { task });
                return Ok(None);
            }
            // Among them `job-connect` and `job-disconnect`, which MPICH's server does not have
            // either.
            _ => refused("not_served"),
        }))
    }

    fn full_init(&self, task: usize, question: &Question) -> Response {
        let rank = self.ranks.get(task).map_or(0, |rank| rank.0);
        let answer = Response::to(question)
            .number("pmi-version", 2u32)
            .number("pmi-subversion", 0u32)
            .number("rank", rank)
            .number("size", self.size)
            .number("appnum", self.program_of(task));
        let answer = if self.programs.is_empty() {
            answer
        } else {
            answer.number("spawner-jobid", self.job)
        };
        // MPICH reads a number here, which this is too: none.
        answer.text("debugged", b"FALSE").text("pmiverbose", b"FALSE")
    }

    /// What the job is said to have under this key, by itself or by its tasks.
    fn job_value(&self, key: &[u8]) -> Option<Vec<u8>> {
        match key {
            b"universeSize" => return Some(self.universe.to_string().into_bytes()),
            b"hasNameServ" => return Some(b"TRUE".to_vec()),
            _ => {}
        }
        let of_ranks = || self.local_ranks(key).map(String::into_bytes);
        let put = || self.spaces.get(&self.space_name)?.get(key).cloned();
        self.attributes.get(key).cloned().or_else(of_ranks).or_else(put)
    }

    fn put_second(
        &mut self,
        task: usize,
        message: &Message,
        out: &mut Vec<Effect>,
    ) -> Result<Response, PmiError> {
        let key = message.needed("kvs-put", "key")?;
        let value = message.needed("kvs-put", "value")?;
        let question = &message.question;
        Ok(match self.put_own(key, value) {
            Ok(()) => Response::to(question),
            Err(Unstored::Full) => {
                self.fill(task, out);
                Response::refused(question, "no_room_for_more_keys")
            }
            Err(Unstored::Refused(reason)) => Response::refused(question, reason),
        })
    }

    /// A value for the other tasks of this node. Those that wait for it go on.
    fn put_of_node(
        &mut self,
        task: usize,
        message: &Message,
        out: &mut Vec<Effect>,
    ) -> Result<Response, PmiError> {
        let key = message.needed("info-putnodeattr", "key")?;
        let value = message.needed("info-putnodeattr", "value")?;
        let freed = self.second.of_node.get(key).map_or(0, |old| entry_bytes(key, old));
        let bytes = self.bytes - freed + entry_bytes(key, value);
        if bytes > STORE_BYTES_MAX {
            self.fill(task, out);
            return Ok(Response::refused(&message.question, "no_room_for_more_keys"));
        }
        self.bytes = bytes;
        self.second.of_node.insert(key.to_vec(), value.to_vec());
        let (goes_on, waits) =
            core::mem::take(&mut self.second.waits).into_iter().partition(|wait| wait.key == key);
        self.second.waits = waits;
        self.answer_waits(goes_on, Some(value), out);
        Ok(Response::to(&message.question))
    }

    fn answer_waits(&mut self, waits: Vec<Wait>, value: Option<&[u8]>, out: &mut Vec<Effect>) {
        for wait in waits {
            self.bytes -= entry_bytes(&wait.key, &[]);
            out.push(Response::to(&wait.question).found(value).send(wait.task));
        }
    }

    fn get_of_node(
        &mut self,
        task: usize,
        message: &Message,
    ) -> Result<Option<Response>, PmiError> {
        let key = message.needed("info-getnodeattr", "key")?;
        let question = &message.question;
        let is_patient = message.get("wait").is_some_and(|wait| wait.eq_ignore_ascii_case(b"TRUE"));
        let value = self.second.of_node.get(key);
        if value.is_some() || !is_patient {
            return Ok(Some(Response::to(question).found(value.map(|value| &value[..]))));
        }
        let has = self.second.waits.iter().filter(|wait| wait.task == task).count();
        if has >= BARRIERS_PER_TASK_MAX as usize
            || self.bytes + entry_bytes(key, &[]) > STORE_BYTES_MAX
        {
            return Ok(Some(Response::refused(question, "it_waits_for_too_much")));
        }
        self.bytes += entry_bytes(key, &[]);
        let wait = Wait { task, question: question.clone(), key: key.to_vec() };
        self.second.waits.push(wait);
        Ok(None)
    }

    /// No task is left that could put what others wait for: these go on without.
    pub(super) fn give_up_waits(&mut self, is_away: impl Fn(usize) -> bool, out: &mut Vec<Effect>) {
        let is_left = |task: &usize| {
            !is_away(*task) && !self.second.waits.iter().any(|wait| wait.task == *task)
        };
        if self.second.is_waited_for() && !(0..self.tasks.len()).any(|task| is_left(&task)) {
            let waits = core::mem::take(&mut self.second.waits);
            self.answer_waits(waits, None, out);
        }
    }

    fn spawn_second(
        &mut self,
        task: usize,
        message: &Message,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Response>, PmiError> {
        let question = &message.question;
        if !matches!(self.tasks[task].spawning, Spawning::None) {
            return Ok(Some(Response::refused(question, "another_spawn_is_under_way")));
        }
        match Collected::of_second(&message.fields)?.finish() {
            Err(reason) => Ok(Some(Response::refused(question, &reason))),
            Ok(spawned) => {
                self.tasks[task].spawning = Spawning::Waiting;
                if let Some(asked) = &mut self.tasks[task].second {
                    asked.spawn = Some(question.clone());
                }
                out.push(Effect::Spawn { task, spawned });
                Ok(None)
            }
        }
    }

    /// The answer to a task that waits in a barrier, in its language.
    pub(super) fn barrier_answer(
        &mut self,
        task: usize,
        tag: u32,
        refused: Option<&str>,
    ) -> Effect {
        let fence = self.tasks[task].second.as_mut().and_then(|asked| asked.fence.take());
        match (fence, refused) {
            (Some(fence), None) => Response::to(&fence).send(task),
            (Some(fence), Some(reason)) => Response::refused(&fence, reason).send(task),
            // A client with threads tells by the tag which thread's barrier it was.
            (None, None) => Answer::done("barrier_out").number("tag", tag).to(task),
            (None, Some(reason)) => {
                Answer::refused("barrier_out", reason).number("tag", tag).to(task)
            }
        }
    }

    /// The answer to a task that waits for its spawn, in its language.
    pub(super) fn spawn_answer(&mut self, task: usize, refused: Option<&str>) -> Effect {
        let spawn = self.tasks[task].second.as_mut().and_then(|asked| asked.spawn.take());
        let refused = refused.map(spawn_reason);
        match (spawn, refused) {
            (Some(spawn), None) => {
                Response::to(&spawn).number("jobid", self.job).number("nerrs", 0u32).send(task)
            }
            (Some(spawn), Some(reason)) => Response::refused(&spawn, &reason).send(task),
            (None, None) => Answer::done(super::SPAWN_RESULT).to(task),
            (None, Some(reason)) => Answer::refused(super::SPAWN_RESULT, &reason).to(task),
        }
    }
}
