// The matrix: a line for each row, a place for each processor, and which row has its turn.

import { badge, clock, duration, h, hue, jobLink, plural, replace, svg, table } from './dom.js';
import { onChange, state, words } from './data.js';
import { turnOf, where } from './lists.js';

const ROW = 30;
const GAP = 14;
const HEAD = 20;
const CELL_MIN = 5;
// Flashes are not faster than this: faster turns are shown in slow motion.
const TURN_MIN_MS = 600;

export function processorsOf(list) {
  return list.split(',').flatMap((part) => {
    const [first, last] = part.split('-').map(Number);
    const end = Number.isNaN(last) || last === undefined ? first : last;
    if (!(end - first < 65536)) return [];
    return Array.from({ length: end - first + 1 }, (_, at) => first + at);
  });
}

// Which job has which processors of a node, in which row.
function seatsOf(jobs) {
  const seats = new Map();
  for (const job of jobs) {
    if (!job.row) continue;
    for (const place of job.placement) {
      const cut = place.lastIndexOf(':');
      const node = place.slice(0, cut);
      if (!seats.has(node)) seats.set(node, []);
      seats.get(node).push({ job, processors: processorsOf(place.slice(cut + 1)) });
    }
  }
  return seats;
}

// Nodes in lines of the picture.
function bandsOf(nodes, room) {
  const bands = [];
  let band = null;
  for (const node of nodes) {
    const width = node.processors * CELL_MIN + GAP;
    if (!band || band.width + width > room) { band = { nodes: [], width: 0 }; bands.push(band); }
    band.nodes.push(node);
    band.width += width;
  }
  return bands;
}

// What stands side by side and belongs to one job.
function runsOf(seat, column) {
  const columns = seat.processors.map(column).filter((it) => it >= 0).sort((a, b) => a - b);
  const runs = [];
  for (const at of columns) {
    const last = runs[runs.length - 1];
    if (last && last.end === at) last.end += 1;
    else runs.push({ begin: at, end: at + 1 });
  }
  return runs;
}

function drawNode(node, seats, row, place) {
  const { x, y, cell } = place;
  const seen = [...new Set(seats.flatMap((seat) => seat.processors))].sort((a, b) => a - b);
  const hasGaps = seen.length > 0 && seen[seen.length - 1] >= node.processors;
  const column = hasGaps ? (it) => seen.indexOf(it) : (it) => it;
  const parts = [svg('rect', { class: 'idle', x, y: y + 3, width: node.processors * cell, height: ROW - 6, rx: 3 })];
  for (const seat of seats.filter((it) => it.job.row === row)) {
    const { job } = seat;
    runsOf(seat, column).forEach((run, at) => {
      const width = (run.end - run.begin) * cell - 1;
      const name = `job ${job.job} ${job.name}, row ${row}, ${plural(seat.processors.length, 'processor')} of ${node.name}`;
      const label = width > 18 ? (width > 70 ? `${job.job} ${job.name}` : String(job.job)) : '';
      const shown = Math.max(1, Math.floor((width - 8) / 7));
      parts.push(svg('a', { href: `#/job/${job.job}`, 'aria-label': name, tabindex: at > 0 ? '-1' : null },
        svg('title', null, name),
        svg('rect', { class: 'job', vars: hue(job.job), x: x + run.begin * cell, y: y + 3, width: Math.max(1, width), height: ROW - 6, rx: 3 }),
        label && svg('text', { class: 'label', x: x + run.begin * cell + 5, y: y + ROW / 2 + 4 },
          label.length > shown ? `${label.slice(0, shown - 1)}…` : label)));
    });
  }
  return parts;
}

function draw(width) {
  const { nodes, jobs } = state.matrix;
  const rows = Math.max(1, ...jobs.map((job) => job.rows));
  const margin = width < 500 ? 76 : 100;
  const bands = bandsOf(nodes, width - margin);
  const seats = seatsOf(jobs);
  const parts = [];
  let y = 0;
  const groups = Array.from({ length: rows }, () => []);
  for (const band of bands) {
    const processors = band.nodes.reduce((sum, node) => sum + node.processors, 0);
    const cell = (width - margin - band.nodes.length * GAP) / Math.max(1, processors);
    let x = margin;
    for (const node of band.nodes) {
      const room = Math.max(2, Math.floor((node.processors * cell + GAP) / 7));
      const name = node.state === 'up' ? node.name : `${node.name} (${node.state})`;
      parts.push(svg('text', { class: 'quiet', x, y: y + 13 }, svg('title', null, name),
        name.length > room ? `${name.slice(0, room - 1)}…` : name));
      for (let row = 1; row <= rows; row += 1) {
        groups[row - 1].push(...drawNode(node, seats.get(node.name) || [], row, { x, y: y + HEAD + (row - 1) * ROW, cell }));
      }
      x += node.processors * cell + GAP;
    }
    for (let row = 1; row <= rows; row += 1) {
      const top = y + HEAD + (row - 1) * ROW;
      const share = jobs.find((job) => job.row === row && job.share_percent !== null)?.share_percent;
      const title = width < 500 ? `${row}` : `row ${row}`;
      groups[row - 1].unshift(
        svg('rect', { class: 'band', x: 0, y: top, width, height: ROW, rx: 4 }),
        svg('path', { class: 'pointer', d: `M4 ${top + 9}l8 6-8 6z` }),
        svg('text', { x: 16, y: top + ROW / 2 + 4 }, title),
        svg('text', { class: 'quiet', x: margin - 8, y: top + ROW / 2 + 4, 'text-anchor': 'end' },
          share === undefined ? '-' : `${share} %`));
    }
    y += HEAD + rows * ROW + 8;
  }
  const drawn = groups.map((group, at) => svg('g', { class: 'row', 'data-row': at + 1, role: 'group', 'aria-label': `row ${at + 1}` }, group));
  const picture = svg('svg', {
    class: rows === 1 ? 'alone' : null, viewBox: `0 0 ${width} ${Math.max(y, 40)}`, height: Math.max(y, 40),
    role: 'group', 'aria-label': `Matrix: ${plural(rows, 'row')}, ${plural(nodes.length, 'node')}`,
  }, parts, drawn);
  return { picture, rows, drawn };
}

// The cycle of turns, from those that were recorded: the latest turns since a row had its turn before.
export function cycleOf(turns) {
  const all = turns.latest.filter((turn, at, list) => at === 0 || list[at - 1].row !== turn.row);
  const last = all.length - 1;
  if (last < 1) return null;
  const before = all.slice(0, last).findLastIndex((turn) => turn.row === all[last].row);
  if (before < 0) return null;
  const slots = [];
  for (let at = before; at < last; at += 1) {
    slots.push({ row: all[at].row, ns: all[at + 1].began_ns - all[at].began_ns });
  }
  const length = slots.reduce((sum, slot) => sum + slot.ns, 0);
  // A row whose turns stopped long ago has nothing to tell of now.
  const age = turns.now_ns === null ? 0 : turns.now_ns - all[last].began_ns;
  if (!(length > 0) || age > 20 * length) return { slots, length, age: age % length, stale: true };
  return { slots, length, age: Math.max(0, age), stale: false };
}

// How long the turns are, in words.
function lengthsOf(slots) {
  const all = slots.map((slot) => slot.ns / 1e6);
  const [shortest, longest] = [Math.min(...all), Math.max(...all)];
  if (longest - shortest < 0.1 * longest) return `each row has ${duration(longest)}`;
  const sorted = [...slots].sort((a, b) => a.row - b.row);
  return sorted.map((slot) => `row ${slot.row} ${duration(slot.ns / 1e6)}`).join(', ');
}

export const rowAt = (cycle, ns) => {
  let rest = ns % cycle.length;
  for (const slot of cycle.slots) {
    if (rest < slot.ns) return slot.row;
    rest -= slot.ns;
  }
  return cycle.slots[0].row;
};

export function view(main) {
  const figures = h('dl', { class: 'card figures', 'aria-label': 'Figures' });
  const box = h('div', { id: 'matrix' });
  const caption = h('p', { class: 'quiet', id: 'turns' });
  const running = h('div', { id: 'running' });
  const waiting = h('div', { id: 'waiting' });
  const events = h('ol', { class: 'events' });
  main.replaceChildren(
    h('h1', { class: 'unseen' }, 'Matrix'), figures,
    h('section', { class: 'card', 'aria-label': 'Matrix' }, h('div', { class: 'head' }, h('h2', null, 'Matrix'), caption), box),
    h('div', { class: 'columns' },
      h('div', null,
        h('section', { class: 'card', 'aria-labelledby': 'waits' }, h('h2', { id: 'waits' }, 'Waiting'), waiting),
        h('section', { class: 'card gap', 'aria-labelledby': 'runs' }, h('h2', { id: 'runs' }, 'Running'), running)),
      h('section', { class: 'card', 'aria-labelledby': 'happened' }, h('h2', { id: 'happened' }, 'What happened'), events)));

  let drawn = [];
  let cycle = null;
  let slow = 1;
  let shown = 0;
  const still = matchMedia('(prefers-reduced-motion: reduce)');
  let drawnAs = '';

  function mark() {
    if (!cycle || still.matches) return;
    const ns = cycle.age + ((performance.now() - cycle.at) * 1e6) / slow;
    const row = rowAt(cycle, ns);
    if (row === shown) return;
    shown = row;
    for (const group of drawn) group.classList.toggle('turn', Number(group.dataset.row) === row);
  }

  function update() {
    if (!state.matrix) return;
    const { nodes, jobs, turns } = state.matrix;
    const up = nodes.filter((node) => node.state === 'up').length;
    const sum = (name) => nodes.reduce((all, node) => all + node[name], 0);
    const runs = jobs.filter((job) => job.placement.length > 0);
    const waits = jobs.filter((job) => job.placement.length === 0);
    const rows = Math.max(0, ...jobs.map((job) => job.rows));
    const values = [[`${up} of ${nodes.length}`, 'nodes up'], [`${sum('processors_used')} of ${sum('processors')}`, 'processors used'],
      [runs.length, 'running'], [waits.length, 'waiting'], [rows, 'rows']];
    if (state.quantum) values.push([state.quantum, 'quantum']);
    if (state.policy) values.push([state.policy, 'policy']);
    figures.replaceChildren(...values.map(([value, title]) => h('div', null, h('dt', null, title), h('dd', null, String(value)))));
    draws();
    const next = cycleOf(turns);
    if (next && rows > 1) {
      const shortest = Math.min(...next.slots.map((slot) => slot.ns)) / 1e6;
      slow = Math.max(1, TURN_MIN_MS / Math.max(0.001, shortest));
      // In slow motion the place in the cycle goes on as it was: only what the cycle is was measured.
      const goesOn = slow > 1 && cycle && !cycle.stale;
      const age = goesOn ? cycle.age + ((performance.now() - cycle.at) * 1e6) / slow : next.age;
      cycle = { ...next, age: age % next.length, at: performance.now() };
      const lengths = lengthsOf(next.slots);
      const speed = slow > 1.05 ? `; shown ${Math.round(slow)} times slower` : '';
      caption.textContent = `Turns: ${lengths}${speed}`;
    } else {
      cycle = null;
      caption.textContent = rows > 1 ? 'Rows take turns' : 'One row: no job waits for a turn';
    }
    shown = 0;
    mark();
    lists(runs, waits);
  }

  function draws() {
    const width = Math.max(280, Math.floor(box.clientWidth));
    // What did not change is not drawn again: the focus stays.
    const as = JSON.stringify([width, state.matrix.nodes.map((it) => [it.name, it.state, it.processors]),
      state.matrix.jobs.map((it) => [it.job, it.name, it.row, it.rows, it.share_percent, it.placement])]);
    if (as === drawnAs) return;
    drawnAs = as;
    const result = draw(width);
    ({ drawn } = result);
    replace(box, result.picture);
  }

  function lists(runs, waits) {
    replace(running, runs.length === 0 ? h('p', { class: 'quiet' }, 'No job runs.') :
      table('Running jobs', [['Job'], ['Name', 'name'], ['State'], ['Turn', 'line'], ['Had', 'number']],
        runs.slice(0, 50).map((job) => [jobLink(job.job),
          `${job.name} of ${job.user}`, badge(job.state), turnOf(job), duration(job.service_ms)])));
    replace(waiting, waits.length === 0 ? h('p', { class: 'quiet' }, 'No job waits.') :
      table('Waiting jobs', [['Job'], ['Name', 'name'], ['Why or where', 'why']],
        waits.slice(0, 50).map((job) => [jobLink(job.job),
          `${job.name} of ${job.user}`, where(job)])));
    if (waits.length > 50) waiting.append(h('a', { href: '#/jobs' }, `all ${waits.length}`));
    if (runs.length > 50) running.append(h('a', { href: '#/jobs' }, `all ${runs.length}`));
  }

  function happened() {
    events.replaceChildren(...(state.events.length === 0 ? [h('li', { class: 'quiet' }, 'Nothing since this page was opened.')] :
      state.events.slice(0, 12).map((event) => h('li', null, h('time', null, clock(event.at_ms)), words(event)))));
  }

  const stop = onChange((what) => (what === 'matrix' ? update() : happened()));
  const resized = new ResizeObserver(() => { if (state.matrix) draws(); });
  resized.observe(box);
  const timer = setInterval(mark, 50);
  update();
  happened();
  return () => { stop(); resized.disconnect(); clearInterval(timer); };
}
