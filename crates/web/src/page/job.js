// One job: what it is, its output, its states, and what can be done to it.

import { alertUser, badge, bytes, chip, clock, confirmed, duration, h, hue, plural, say, svg } from './dom.js';
import { ask, askJson, onChange, refresh } from './data.js';
import { ticks } from './gantt.js';
import { turnOf, where } from './lists.js';

const OUTPUT_CHARS = 200000;
const LINES = 500;
const RANKS = 256;

const ACTIONS = {
  suspend: ['Suspend', 'It gets no turns until it is resumed.'],
  resume: ['Resume', 'It gets turns again.'],
  hold: ['Hold', 'It does not start until it is released.'],
  release: ['Release', 'It is in line again.'],
  cancel: ['Cancel', 'Its processes get SIGTERM, and SIGKILL after its grace. This ends the job.'],
};

function possible(job) {
  if (job.exit_code !== null || job.state === 'ending') return [];
  if (job.state === 'suspended') return ['resume', 'cancel'];
  if (!['queued', 'checkpointed'].includes(job.state)) return ['suspend', 'cancel'];
  return [job.wait === 'held' ? 'release' : 'hold', 'cancel'];
}

function facts(job) {
  const d = job.details;
  const list = [
    ['Owner', job.user], ['Class', job.former_class ? `${job.class}, was ${job.former_class}` : job.class], ['Queue', job.queue],
    ['Tasks', `${job.tasks}, on ${plural(job.processors, 'processor')}`], ['Turn', turnOf(job)],
    ['Submitted', clock(job.accepted_ms)], ['Started', job.started_ms && clock(job.started_ms)], ['Ended', job.ended_ms && clock(job.ended_ms)],
    ['Waited', duration(job.waited_ms)], ['Time of its turns', duration(job.service_ms)],
    ['Time limit', job.time_limit_ms && `${duration(job.time_limit_ms)}, ${duration(job.time_left_ms)} left`],
    ['Place in line', job.position],
    ['Memory', job.usage && `${bytes(job.usage.memory_peak_bytes)} of one task at most`],
    ['Processor time', job.usage && duration((job.usage.cpu_user_us + job.usage.cpu_system_us) / 1000)],
  ];
  if (d) {
    list.push(['Command', d.command.join(' ') + (d.command_left_out ? ` and ${d.command_left_out} more` : '')],
      ['Directory', d.directory], ['Output', d.output], ['Error', d.error !== d.output ? d.error : null],
      ['Memory asked', d.memory_per_task_bytes && `${bytes(d.memory_per_task_bytes)} each task`],
      ['Nodes', d.nodes.map((it) => `${it.node}: ${plural(it.tasks, 'task')} on processors ${it.processors}`).join('\n')]);
  }
  return h('dl', { class: 'facts' }, list.filter(([, value]) => value).map(([title, value]) => [h('dt', null, title), h('dd', null, String(value))]));
}

// Why there is no output to be asked for.
function silent(job) {
  if (!job.details) return 'Only the owner of the job sees its output.';
  if (job.details.output_to === 'front-end') return 'tutti run shows the output where it was started.';
  if (job.details.output_to !== 'files') return 'Its processes were adopted, and write where they wrote before.';
  if (job.details.output === '/dev/null') return 'It goes to /dev/null, and is not kept.';
  return job.started_ms === null && job.ended_ms === null ? 'None yet: the job has not started.' : null;
}

function history(job) {
  const states = job.details?.states || [];
  return h('ol', { class: 'events' }, states.map((it, at) => {
    const until = states[at + 1]?.at_ms ?? job.ended_ms ?? Date.now();
    return h('li', null, h('time', null, clock(it.at_ms)), badge(it.state), ` ${duration(Math.max(0, until - it.at_ms))}`);
  }));
}

const BAR = 26;
const WORDS = { wait: 'waited', job: 'ran', still: 'stood still' };

// What the job did from when to when, as far as its states are known.
function spans(job, now) {
  const end = job.ended_ms ?? now;
  const states = job.details?.states || [];
  const kind = (state) => (['queued', 'checkpointed'].includes(state) ? 'wait' : ['running', 'checkpointing', 'ending'].includes(state) ? 'job' : state === 'ended' ? null : 'still');
  const all = states.map((it, at) => ({ kind: kind(it.state), state: it.state, from: it.at_ms, until: Math.max(it.at_ms, states[at + 1]?.at_ms ?? end) }));
  if (states.length === 0) {
    const begin = job.started_ms ?? end;
    all.push({ kind: 'wait', state: 'waited', from: job.accepted_ms, until: begin });
    if (job.started_ms) all.push({ kind: 'job', state: 'ran', from: begin, until: end });
  }
  return all.filter((it) => it.kind && it.until > it.from);
}

// When the job waited, ran and stood still.
function bar(job, width) {
  const now = Date.now();
  const all = spans(job, now);
  if (all.length === 0) return h('p', { class: 'quiet' }, 'Nothing yet.');
  const [from, until] = [all[0].from, all[all.length - 1].until];
  const x = (ms) => 2 + ((ms - from) / (until - from)) * (width - 4);
  const sum = (kind) => all.filter((it) => it.kind === kind).reduce((total, it) => total + it.until - it.from, 0);
  const words = Object.keys(WORDS).filter((kind) => sum(kind) > 0).map((kind) => `${WORDS[kind]} ${duration(sum(kind))}`);
  const left = job.details?.states_left_out ? `; ${plural(job.details.states_left_out, 'earlier state')} not shown` : '';
  const text = words.join(', ') + left;
  const parts = ticks(from, until, width).filter((at) => x(at) > 24 && x(at) < width - 24).map((at) => [
    svg('line', { class: 'grid', x1: x(at), x2: x(at), y1: 15, y2: 18 + BAR }),
    svg('text', { class: 'quiet', x: x(at), y: 11, 'text-anchor': 'middle' }, clock(at).split(' ').pop())]);
  all.forEach((it) => {
    const [y, height] = it.kind === 'job' ? [18, BAR - 4] : [18 + BAR / 2 - 6, 8];
    parts.push(svg('rect', { class: it.kind, vars: hue(job.job), x: x(it.from), y, height, rx: 2, width: Math.max(1.5, x(it.until) - x(it.from)) },
      svg('title', null, `${it.state}, ${duration(it.until - it.from)}, from ${clock(it.from)}`)));
  });
  const height = 20 + BAR;
  return [svg('svg', { class: 'bar', viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': `Over time: ${text}` }, parts),
    h('p', { class: 'quiet' }, text)];
}

// Output of one rank or all, followed as it comes.
function outputPanel(number) {
  const rank = h('select', { 'aria-label': 'Rank' }, h('option', { value: '' }, 'all ranks'));
  const stream = h('select', { 'aria-label': 'Stream' }, h('option', { value: '' }, 'output'), h('option', { value: 'error' }, 'error'));
  const said = h('span', { class: 'quiet', role: 'status' });
  const pre = h('pre', { class: 'output', tabindex: '0', 'aria-label': 'Output of the job' });
  const panel = h('section', { class: 'card', 'aria-labelledby': 'output-title' },
    h('div', { class: 'head' }, h('h2', { id: 'output-title' }, 'Output'), h('div', { class: 'tools' }, rank, stream)), said, pre);
  let abort = null;

  function add(text) {
    const isAtEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 30;
    let all = pre.textContent + text;
    if (all.length > OUTPUT_CHARS) all = `(earlier output is left out)\n${all.slice(-OUTPUT_CHARS)}`;
    pre.textContent = all;
    if (isAtEnd) pre.scrollTop = pre.scrollHeight;
  }

  async function load() {
    abort?.abort();
    abort = new AbortController();
    const { signal } = abort;
    pre.textContent = '';
    said.textContent = '';
    const query = new URLSearchParams({ lines: LINES, follow: 'true' });
    if (rank.value) query.set('rank', rank.value);
    if (stream.value) query.set('error', 'true');
    try {
      const response = await ask(`v1/jobs/${number}/output?${query}`, { signal });
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      said.textContent = `the last ${LINES} lines, followed until the job ends`;
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        add(decoder.decode(value, { stream: true }));
      }
      said.textContent = 'that is all: the job has ended';
    } catch (error) {
      if (!signal.aborted) said.textContent = error.message;
    }
  }

  rank.addEventListener('change', load);
  stream.addEventListener('change', load);
  return {
    panel, load,
    note: (text) => { if (said.textContent !== text) said.textContent = text; },
    stop: () => abort?.abort(),
    ranks(count) {
      if (rank.options.length > 1) return;
      for (let at = 0; at < Math.min(count, RANKS); at += 1) rank.append(h('option', { value: String(at) }, `rank ${at}`));
    },
  };
}

export function view(main, number) {
  const title = h('h1', { id: 'title' }, chip(number), `Job ${number}`);
  const status = h('p', { class: 'quiet' });
  const actions = h('div', { class: 'actions' });
  const about = h('div');
  const states = h('div');
  const over = h('div', { id: 'bar' });
  const output = outputPanel(number);
  main.replaceChildren(
    h('section', { class: 'card', 'aria-labelledby': 'title' }, h('div', { class: 'head' }, title, actions), status, over),
    h('div', { class: 'columns' }, output.panel,
      h('div', null, h('section', { class: 'card', 'aria-label': 'Details' }, about),
        h('section', { class: 'card gap', 'aria-labelledby': 'states' }, h('h2', { id: 'states' }, 'States'), states))));
  let begun = false;

  async function act(verb) {
    const [word, text] = ACTIONS[verb];
    if (!await confirmed(`${word} job ${number}?`, text, `${word} job ${number}`)) return;
    try {
      await ask(`v1/jobs/${number}/${verb}`, { method: 'POST' });
      say(`${word}: done`);
      alertUser('');
    } catch (error) {
      alertUser(`${word} of job ${number}: ${error.message}`);
    }
    load();
    refresh();
  }

  let shown = '';
  async function load() {
    let job;
    try { job = await askJson(`v1/jobs/${number}`); } catch (error) { status.textContent = error.message; return; }
    title.replaceChildren(chip(number), `Job ${number} ${job.name}`);
    status.replaceChildren(badge(job.ending ?? job.state), ` ${where(job)}${job.detail ? `\n${job.detail}` : ''}`);
    const verbs = possible(job).join();
    if (verbs !== shown) {
      shown = verbs;
      actions.replaceChildren(...possible(job).map((verb) => h('button', {
        type: 'button', 'data-action': verb, class: verb === 'cancel' ? 'danger' : null, onclick: () => act(verb) }, ACTIONS[verb][0])));
    }
    about.replaceChildren(facts(job));
    over.replaceChildren(...[bar(job, Math.max(240, Math.floor(over.clientWidth)))].flat());
    states.replaceChildren(job.details ? history(job) : h('p', { class: 'quiet' }, 'Only the owner of the job sees its states, command and output.'));
    output.ranks(job.tasks);
    const why = silent(job);
    if (why) output.note(why);
    else if (!begun) { begun = true; output.load(); }
  }

  const stop = onChange((what) => { if (what === 'matrix') load(); });
  load();
  return () => { stop(); output.stop(); };
}
