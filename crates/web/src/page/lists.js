// Jobs and nodes as lists.

import { alertUser, badge, bytes, duration, h, jobLink, plural, replace, table } from './dom.js';
import { askJson, onChange, state } from './data.js';

const SHOWN = 200;

export function turnOf(job) {
  if (!job.row) return '-';
  if (job.rows === 1) return 'always';
  const share = job.share_percent === null ? '' : `, ${job.share_percent} %`;
  return `row ${job.row} of ${job.rows}${share}`;
}

// Where a job is, why it waits, or how it ended.
export function where(job) {
  let text = job.placement.join(' ');
  if (job.exit_code !== null) text = job.exit_code === 0 ? job.reason : `exit ${job.exit_code}: ${job.reason}`;
  else if (job.reason) text = text ? `${text}: ${job.reason}` : job.reason;
  if (job.resources.length > 0) text += ` [${job.resources.join(' ')}]`;
  if (job.suspended.length > 0) text += ` (${job.suspended.join(', ')} suspended)`;
  return text || '-';
}

const matches = (job, words) => {
  const text = [job.job, job.name, job.user, job.class, job.state, job.queue, where(job)].join(' ').toLowerCase();
  return words.every((word) => text.includes(word));
};

export function jobs(main) {
  const filter = h('input', { type: 'search', id: 'filter', placeholder: 'Filter: number, name, user, class, reason', 'aria-label': 'Filter jobs' });
  const which = h('select', { 'aria-label': 'Which jobs' },
    h('option', { value: 'live' }, 'live'), h('option', { value: 'waiting' }, 'waiting'), h('option', { value: 'all' }, 'also ended'));
  const count = h('p', { class: 'quiet', role: 'status' });
  const box = h('div');
  main.replaceChildren(h('section', { class: 'card', 'aria-labelledby': 'title' },
    h('h1', { id: 'title' }, 'Jobs'), h('div', { class: 'tools' }, filter, which), count, box));
  let ended = [];
  let most = SHOWN;

  function update() {
    if (!state.matrix) return;
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let all = which.value === 'all' ? ended : state.matrix.jobs;
    if (which.value === 'waiting') all = all.filter((job) => job.placement.length === 0);
    const found = all.filter((job) => matches(job, words));
    count.textContent = plural(found.length, 'job');
    const rows = found.slice(0, most).map((job) => [
      jobLink(job.job), job.name, badge(job.state), job.user, job.class,
      String(job.tasks), turnOf(job), duration(job.age_s * 1000), duration(job.service_ms), where(job)]);
    const list = rows.length === 0 ? h('p', { class: 'quiet' }, 'No such job.') :
      table('Jobs', [['Job'], ['Name', 'name'], ['State'], ['User'], ['Class'], ['Tasks', 'number'], ['Turn', 'line'], ['Age', 'number'],
        ['Had', 'number'], ['Why or where', 'why']], rows);
    const more = found.length > most &&
      h('button', { type: 'button', onclick: () => { most += SHOWN; update(); } }, `Show more of ${found.length}`);
    replace(box, ...[list, more].filter(Boolean));
  }

  async function load() {
    if (which.value === 'all') {
      try { ended = (await askJson('v1/jobs?ended=true')).reverse(); } catch (error) { alertUser(error.message); }
    }
    update();
  }

  filter.addEventListener('input', update);
  which.addEventListener('change', load);
  const stop = onChange((what) => { if (what === 'matrix') load(); });
  load();
  return stop;
}

function meter(parts, label) {
  return h('span', { class: 'meter', role: 'img', 'aria-label': label },
    parts.map(([part, kind]) => h('i', { class: kind, vars: { '--part': `${Math.min(100, Math.max(0, part * 100))}%` } })));
}

export function nodes(main) {
  const box = h('div');
  main.replaceChildren(h('section', { class: 'card', 'aria-labelledby': 'title' }, h('h1', { id: 'title' }, 'Nodes'), box));

  async function load() {
    let all;
    try { all = await askJson('v1/nodes'); } catch (error) { alertUser(error.message); return; }
    const rows = all.slice(0, 1000).map((node) => {
      const external = (node.external_load_milli ?? 0) / 1000;
      const used = node.processors_used / Math.max(1, node.processors);
      const memory = node.memory_allocated_bytes / Math.max(1, node.memory_bytes);
      const load = node.load_averages_milli ? (node.load_averages_milli[0] / 1000).toFixed(2) : '-';
      const label = `${node.processors_used} of ${node.processors} in use`;
      const outside = node.external_load_milli === null ? 'unknown' : external.toFixed(1);
      return [node.name, h('span', null, badge(node.state), node.drained ? ` ${node.drained}` : ''),
        h('span', null, label, meter([[used, null]], label)),
        h('span', null, outside, meter([[external / Math.max(1, node.processors), 'external']], `external load ${outside}`)),
        h('span', null, `${bytes(node.memory_allocated_bytes)} of ${bytes(node.memory_bytes)}`, meter([[memory, null]], 'allocated memory')),
        bytes(node.memory_free_bytes), load, String(node.jobs), node.sets.join(', ') || '-'];
    });
    box.replaceChildren(table('Nodes', [['Node'], ['State'], ['Processors', 'wide'], ['External load', 'wide'], ['Allocated memory', 'wide'],
      ['Free memory', 'number'], ['Load', 'number'], ['Jobs', 'number'], ['Sets']], rows));
  }

  let next = 0;
  const stop = onChange((what) => {
    if (what !== 'matrix' || performance.now() < next) return;
    next = performance.now() + 2000;
    load();
  });
  load();
  return stop;
}
