// What processors were used for over time and by node, and what users got.

import { alertUser, clock, duration, h, plural, svg, table } from './dom.js';
import { askJson } from './data.js';
import { ticks } from './gantt.js';

const HEIGHT = 150;
const DAY = 86400000;
const SPANS = { 1: '1 day', 7: '7 days', 30: '30 days' };
const WHO = { user: 'user', group: 'group', class: 'class', queue: 'queue' };

const percent = (part, whole) => (part === null || whole === 0 ? '-' : `${((100 * part) / whole).toFixed(1)} %`);

// What the cluster's jobs had, what others had; all of it counts as others' where a node can't tell.
function parts(row) {
  const jobs = Math.min(row.jobs_ms ?? 0, row.busy_ms);
  return { jobs, others: row.busy_ms - jobs };
}

const inWords = (row) => {
  const { jobs, others } = parts(row);
  return `${clock(row.since_ms)}: jobs ${percent(row.jobs_ms === null ? null : jobs, row.processor_ms)}, others ${percent(others, row.processor_ms)}`;
};

function draw(rows, { from, until, width }) {
  const margin = 44;
  const x = (ms) => margin + ((Math.min(until, Math.max(from, ms)) - from) / (until - from)) * (width - margin - 4);
  const y = (part) => 6 + (1 - part) * (HEIGHT - 30);
  const lines = [0, 0.5, 1].map((part) => [
    svg('line', { class: 'grid', x1: margin, x2: width - 4, y1: y(part), y2: y(part) }),
    svg('text', { class: 'quiet', x: margin - 6, y: y(part) + 4, 'text-anchor': 'end' }, `${part * 100} %`)]);
  const times = ticks(from, until, width - margin).map((at) =>
    svg('text', { class: 'quiet', x: x(at), y: HEIGHT - 6, 'text-anchor': 'middle' }, clock(at).replace(/:00$/, '')));
  const bars = rows.map((row) => {
    const { jobs, others } = parts(row);
    const of = (ms) => Math.min(1, ms / Math.max(1, row.processor_ms));
    const left = x(row.since_ms);
    const wide = Math.max(1, x(row.until_ms) - left - 1);
    return svg('g', null, svg('title', null, inWords(row)),
      svg('rect', { class: 'band', x: left, y: y(1), width: wide, height: y(0) - y(1) }),
      svg('rect', { class: 'by-jobs', x: left, y: y(of(jobs)), width: wide, height: y(0) - y(of(jobs)) }),
      svg('rect', { class: 'by-others', x: left, y: y(of(jobs + others)), width: wide, height: y(of(jobs)) - y(of(jobs + others)) }));
  });
  return svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: 'img', 'aria-label': 'Use of processors over time; the same as a table by node below' },
    lines, bars, times);
}

const usageTable = (rows) => table('Use of processors by node', [['Node'], ['Processors', 'number'], ['Jobs', 'number'], ['Others', 'number'], ['Idle', 'number']],
  rows.map((row) => {
    const { jobs, others } = parts(row);
    const isKnown = row.jobs_ms !== null;
    return [row.node, String(row.processors), percent(isKnown ? jobs : null, row.processor_ms), percent(isKnown ? others : null, row.processor_ms),
      percent(Math.max(0, row.processor_ms - row.busy_ms), row.processor_ms)];
  }));

const reportTable = (report) => table('What each got', [[report.by[0].toUpperCase() + report.by.slice(1)], ['Jobs', 'number'], ['Failed', 'number'],
  ['Cancelled', 'number'], ['Granted', 'number'], ['CPU', 'number'], ['Mean wait', 'number'], ['Longest', 'number'], ['Use', 'number']],
  [...report.rows, report.total].map((row) => [row.name, String(row.jobs), String(row.failed), String(row.cancelled), duration(row.granted_ms),
    duration(row.cpu_ms), duration(row.wait_mean_ms), duration(row.wait_longest_ms), row.use_percent === null ? '-' : `${row.use_percent.toFixed(1)} %`]));

const choice = (label, id, options) => h('select', { 'aria-label': label, id },
  Object.entries(options).map(([value, name]) => h('option', { value }, name)));

export function view(main) {
  const span = choice('Time shown', 'report-span', SPANS);
  const who = choice('Rows stand for', 'report-by', WHO);
  const chart = h('div', { id: 'usage' });
  const nodes = h('div', { id: 'usage-nodes' });
  const report = h('div', { id: 'report' });
  main.replaceChildren(
    h('section', { class: 'card', 'aria-labelledby': 'title' }, h('div', { class: 'head' }, h('h1', { id: 'title' }, 'Reports'), span),
      h('p', { class: 'quiet' }, 'Part of the processors that jobs of this cluster had (blue), and all others (orange).'), chart),
    h('section', { class: 'card', 'aria-labelledby': 'by-node' }, h('h2', { id: 'by-node' }, 'By node'), nodes),
    h('section', { class: 'card', 'aria-labelledby': 'by-who' }, h('div', { class: 'head' }, h('h2', { id: 'by-who' }, 'Jobs that ended'), who), report));
  let isGone = false;

  async function load() {
    const until = Date.now();
    const from = until - Number(span.value) * DAY;
    const by = span.value === '1' ? 'interval' : 'hour';
    let times;
    let ofNodes;
    let got;
    try {
      [times, ofNodes, got] = await Promise.all([askJson(`v1/usage?by=${by}&since_ms=${from}`), askJson(`v1/usage?by=node&since_ms=${from}`),
        askJson(`v1/report?by=${who.value}&since_ms=${from}`)]);
    } catch (error) { alertUser(error.message); return; }
    if (isGone) return;
    const none = () => h('p', { class: 'quiet' }, 'Nothing was measured in this time yet; each interval is shown when it has ended.');
    // Where all is young, the time before would be mostly empty.
    const first = times.length > 0 ? times[0].since_ms : from;
    const shownFrom = Math.max(from, Math.min(first, until - 3600000));
    chart.replaceChildren(times.length === 0 ? none() : draw(times, { from: shownFrom, until, width: Math.max(280, Math.floor(chart.clientWidth)) }));
    nodes.replaceChildren(ofNodes.length === 0 ? none() : usageTable(ofNodes.slice(0, 1000)));
    report.replaceChildren(got.rows.length === 0 ? h('p', { class: 'quiet' }, 'No job ended in this time.') : reportTable(got));
    chart.setAttribute('data-intervals', plural(times.length, 'interval'));
  }

  span.addEventListener('change', load);
  who.addEventListener('change', load);
  const timer = setInterval(load, 60000);
  load();
  return () => { isGone = true; clearInterval(timer); };
}
