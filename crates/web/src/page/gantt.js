// Jobs over time: those that ended, those that run, and when those that wait are expected.

import { alertUser, badge, clock, duration, h, hue, jobLink, plural, replace, svg, table } from './dom.js';
import { askJson, onChange, state } from './data.js';

const LINE = 22;
const JOBS = 60;
const WINDOWS = { 600: '10 minutes', 3600: '1 hour', 21600: '6 hours', 86400: '1 day', 604800: '7 days' };

function spanOf(job, now) {
  if (job.ended_ms !== undefined) {
    return { accepted: job.accepted_ms, begin: Math.min(job.accepted_ms + job.waited_ms, job.ended_ms), end: job.ended_ms, open: false };
  }
  const accepted = now - job.age_s * 1000;
  if (job.placement.length === 0) return { accepted, begin: now, end: now, open: true };
  return { accepted, begin: Math.min(now, accepted + job.waited_ms), end: now, open: true };
}

export function ticks(from, until, width) {
  const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400].map((it) => it * 1000);
  const step = steps.find((it) => ((until - from) / it) * 80 < width) ?? steps[steps.length - 1];
  const zone = new Date(from).getTimezoneOffset() * 60000;
  const all = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at < until; at += step) all.push(at);
  return all;
}

function draw(jobs, starts, { from, until, now, width }) {
  const margin = width < 500 ? 60 : 150;
  const room = width - margin - 6;
  // What is expected may be hours away, where all that ran took seconds: it has a scale of its own.
  const past = (now - from) / (until - from) < 0.5 ? 0.5 * room : ((now - from) / (until - from)) * room;
  const x = (ms) => margin + (ms <= now ? Math.max(0, (ms - from) / (now - from)) * past :
    past + Math.min(1, (ms - now) / (until - now)) * (room - past));
  const times = [...ticks(from, now, past), ...ticks(now, until, room - past)];
  const parts = times.filter((at, index) => x(at) < width - 26 && (index === 0 || x(at) - x(times[index - 1]) > 50)).map((at) => [
    svg('line', { class: 'grid', x1: x(at), x2: x(at), y1: 18, y2: 18 + jobs.length * LINE }),
    svg('text', { class: 'quiet', x: x(at), y: 12, 'text-anchor': 'middle' }, clock(at).replace(/:00$/, '')),
  ]);
  jobs.forEach((job, at) => {
    const span = spanOf(job, now);
    const y = 18 + at * LINE;
    const start = starts.get(job.job);
    const name = `job ${job.job} ${job.name}: ${job.ending ?? job.state}, waited ${duration(span.begin - span.accepted)}, ran ${duration(span.end - span.begin)}`;
    const letters = width < 500 ? 7 : 20;
    const label = `${job.job} ${job.name}`;
    parts.push(svg('a', { href: `#/job/${job.job}`, 'aria-label': name }, svg('title', null, name),
      svg('rect', { class: 'band', x: 0, y, width, height: LINE }),
      svg('text', { x: 2, y: y + 15 }, label.length > letters ? `${label.slice(0, letters - 1)}…` : label),
      svg('rect', { class: 'wait', x: x(span.accepted), y: y + 9, width: Math.max(0, x(span.begin) - x(span.accepted)), height: 4 }),
      svg('rect', { class: span.open ? 'job open' : 'job', vars: hue(job.job), x: x(span.begin), y: y + 4, rx: 2,
        width: Math.max(job.placement?.length === 0 && span.open ? 0 : 2, x(span.end) - x(span.begin)), height: LINE - 8 }),
      start?.starts_ms && start.starts_ms < until && svg('rect', { class: 'wait', x: x(start.starts_ms), y: y + 4, rx: 2, height: LINE - 8,
        width: Math.max(2, x(start.ends_ms ?? until) - x(start.starts_ms)) })));
  });
  parts.push(svg('line', { class: 'now', x1: x(now), x2: x(now), y1: 16, y2: 18 + jobs.length * LINE }));
  const height = 24 + jobs.length * LINE;
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'group', 'aria-label': 'Jobs over time' }, parts);
}

export function view(main) {
  const which = h('select', { 'aria-label': 'Time shown' }, Object.entries(WINDOWS).map(([seconds, name]) =>
    h('option', { value: seconds, selected: seconds === '3600' }, name)));
  const box = h('div', { id: 'gantt' });
  const list = h('div');
  const note = h('p', { class: 'quiet' });
  const legend = h('p', { class: 'quiet' });
  main.replaceChildren(
    h('section', { class: 'card', 'aria-labelledby': 'title' }, h('div', { class: 'head' }, h('h1', { id: 'title' }, 'History'), which),
      legend, box, note),
    h('section', { class: 'card', 'aria-labelledby': 'ended' }, h('h2', { id: 'ended' }, 'Ended jobs'), list));
  let drawnAt = 0;
  let isFirst = true;

  async function load() {
    const now = Date.now();
    const from = now - Number(which.value) * 1000;
    let ended;
    let starts;
    try {
      [ended, starts] = await Promise.all([askJson(`v1/history?since_ms=${from}`), askJson('v1/starts').catch(() => ({ jobs: [] }))]);
    } catch (error) { alertUser(error.message); return; }
    drawnAt = now;
    const live = state.matrix?.jobs || [];
    const all = [...ended, ...live];
    // Where all is young, the last hour would be mostly empty.
    const oldest = Math.min(now, ...all.map((job) => spanOf(job, now).accepted));
    if (isFirst && now - oldest < 600000) { isFirst = false; which.value = '600'; load(); return; }
    isFirst = false;
    const shown = all.slice(-JOBS).sort((a, b) => spanOf(a, now).begin - spanOf(b, now).begin || a.job - b.job);
    const expected = new Map(starts.jobs.map((it) => [it.job, it]));
    // Before the oldest job that is shown, there is nothing to see.
    const young = Math.max(12000, (now - Math.min(...shown.map((job) => spanOf(job, now).accepted))) * 1.05);
    const span = Math.min(Number(which.value) * 1000, shown.length === 0 ? Infinity : young);
    // What is expected has room, up to three times the time that is chosen.
    const most = 3 * Number(which.value) * 1000;
    const soon = starts.jobs.filter((it) => it.starts_ms < now + most);
    const ahead = Math.max(0, ...soon.map((it) => ((it.ends_ms ?? it.starts_ms) - now) * 1.05));
    const until = now + (soon.length > 0 ? Math.min(most, Math.max(0.3 * span, ahead)) : 0.02 * span);
    const later = starts.jobs.filter((it) => it.starts_ms >= until).length;
    replace(box, shown.length === 0 ? h('p', { class: 'quiet' }, 'No job in this time.') :
      draw(shown, expected, { from: now - span, until, now, width: Math.max(280, Math.floor(box.clientWidth)) }));
    legend.textContent = `Pale: waited, or expected start. Colour: ran. Red line: now${
      until - now > span ? '; what is ahead has a scale of its own' : ''}.`;
    note.textContent = [all.length > JOBS && `The latest ${JOBS} of ${all.length} jobs.`,
      later > 0 && `${plural(later, 'job')} expected to start after ${clock(until)}.`].filter(Boolean).join(' ');
    replace(list, ended.length === 0 ? h('p', { class: 'quiet' }, 'None.') :
      table('Ended jobs', [['Job'], ['Name', 'name'], ['State'], ['User'], ['Ended'], ['Waited', 'number'], ['Ran', 'number'], ['Exit', 'number']],
        ended.slice(-100).reverse().map((job) => { const span = spanOf(job, now);
          return [jobLink(job.job), job.name, badge(job.ending), job.user, clock(job.ended_ms),
            duration(span.begin - span.accepted), duration(span.end - span.begin), String(job.exit_code)]; })));
    main.dataset.jobs = plural(all.length, 'job');
  }

  which.addEventListener('change', load);
  const stop = onChange((what) => { if (what === 'matrix' && Date.now() - drawnAt > 1500) load(); });
  const resized = new ResizeObserver(() => { if (drawnAt && Date.now() - drawnAt > 500) load(); });
  resized.observe(box);
  load();
  return () => { stop(); resized.disconnect(); };
}
