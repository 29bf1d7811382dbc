// What the page knows, and how it hears of more: one stream of events, and snapshots when something
// changed. Nothing is asked while the page is hidden.

import { alertUser, byId, plural, say } from './dom.js';

export const state = {
  matrix: null,
  quantum: null,
  policy: null,
  // Latest first.
  events: [],
};

const EVENTS_SHOWN = 30;
const CHANGED_MS = 300;
const listeners = new Set();
let away = null;
let timer = 0;
let busy = false;
let again = false;

export class Refused extends Error {}

// Asks the server; an error has the instance's own words.
export async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: 'same-origin', ...options });
  } catch {
    throw new Refused('The page is out of touch: tutti web has ended, or the way to it was cut.');
  }
  if (response.status === 401) {
    throw new Refused('The session has ended. Open the address that tutti web printed last.');
  }
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));
    throw new Refused(said.error ? `${said.error} [${said.code}]` : `The server answered ${response.status}.`);
  }
  return response;
}

export const askJson = async (path) => (await ask(path)).json();

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(what) { for (const listener of [...listeners]) listener(what); }

function setLive(kind, text) {
  const live = byId('live');
  live.className = `live ${kind}`;
  if (live.textContent !== text) live.textContent = text;
}

export async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  clearTimeout(timer);
  try {
    const matrix = await askJson('v1/matrix');
    state.matrix = matrix;
    if (!away) alertUser('');
    tell('matrix');
  } catch (error) {
    alertUser(error.message);
    setLive('off', 'no connection');
  }
  busy = false;
  if (again) { again = false; soon(); } else plan();
}

// Turns are measured anew often; all else is known from events.
function plan() {
  clearTimeout(timer);
  if (document.hidden) return;
  const rows = Math.max(0, ...(state.matrix?.jobs || []).map((job) => job.rows));
  timer = setTimeout(refresh, rows > 1 ? 2000 : 5000);
}

let pending = 0;
function soon() {
  if (pending) return;
  pending = setTimeout(() => { pending = 0; refresh(); }, CHANGED_MS);
}

export async function loadParams() {
  const all = await askJson('v1/params');
  const value = (name) => all.params.find((it) => it.name === name)?.value ?? null;
  state.quantum = value('quantum');
  state.policy = value('policy');
}

function take(event) {
  state.events.unshift(event);
  state.events.length = Math.min(state.events.length, EVENTS_SHOWN);
  if (event.event === 'setting_changed') loadParams().catch(() => {});
  if (event.event === 'job_ended') say(`${nameOf(event)} ended: ${event.ending}`);
  if (event.event === 'job_started') say(`${nameOf(event)} started`);
  tell('event');
  soon();
}

export function start() {
  const source = new EventSource('v1/events');
  source.onopen = () => { setLive('on', 'live'); away = null; refresh(); };
  source.onmessage = (message) => take(JSON.parse(message.data));
  source.onerror = () => {
    setLive('off', 'reconnecting');
    if (source.readyState === EventSource.CLOSED) {
      // What lies between is not kept any more, or the session has ended: look anew.
      refresh();
      setTimeout(start, 3000);
    }
  };
  source.addEventListener('away', (message) => {
    away = JSON.parse(message.data);
    setLive('off', 'instance away');
    alertUser(`${away.error} [${away.code}]`);
  });
  source.addEventListener('back', () => { away = null; setLive('on', 'live'); alertUser(''); refresh(); });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
}

const nameOf = (event) => (event.name ? `job ${event.job} (${event.name})` : `job ${event.job}`);

// An event in words.
export function words(event) {
  const node = event.node ? `node ${event.node}` : '';
  const of = event.job ? nameOf(event) : '';
  switch (event.event) {
    case 'job_submitted': return `${of} of ${event.user} submitted, ${plural(event.tasks, 'task')}, class ${event.class}`;
    case 'job_started': return `${of} started on ${event.nodes.map((it) => it.node).join(', ')}`;
    case 'job_ended': return `${of} ended: ${event.ending}, exit ${event.exit_code}`;
    case 'tasks_ended': return `${of}: ranks ${event.ranks} ${event.status}, exit ${event.exit_code}`;
    case 'job_limit_changed': return `${of} has ${event.time_limit_ms === null ? 'no time limit' : 'another time limit'}`;
    case 'job_class_changed': return `${of} has class ${event.class}`;
    case 'setting_changed': return `setting changed: ${event.kind} ${event.name} ${event.values.join(' ')}`;
    case 'node_drained': return `${node} drained${event.reason ? `: ${event.reason}` : ''}`;
    case 'controller_started': return `a controller took over (${event.release})`;
    default: return [of || node, event.event.replace(/^(job|node)_/, '').replaceAll('_', ' '),
      of && node ? `on ${node}` : ''].filter(Boolean).join(' ');
  }
}
