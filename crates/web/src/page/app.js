// The page: which view is shown, keys, colours.

import { alertUser, byId } from './dom.js';
import { loadParams, refresh, start } from './data.js';
import * as matrix from './matrix.js';
import * as lists from './lists.js';
import * as job from './job.js';
import * as gantt from './gantt.js';
import * as reports from './reports.js';
import * as submit from './submit.js';

const main = byId('main');
const KEYS = { m: '#/', j: '#/jobs', n: '#/nodes', h: '#/history', r: '#/reports', s: '#/submit' };
const TITLES = { matrix: 'Matrix', jobs: 'Jobs', nodes: 'Nodes', history: 'History', reports: 'Reports', job: 'Job', submit: 'New job' };
let leave = () => {};
let isFirst = true;

function show() {
  const [, view = '', rest = ''] = location.hash.replace(/^#/, '').split('/');
  const number = Number(rest);
  leave();
  let name = 'matrix';
  if (view === 'jobs') { name = 'jobs'; leave = lists.jobs(main); }
  else if (view === 'nodes') { name = 'nodes'; leave = lists.nodes(main); }
  else if (view === 'submit') { name = 'submit'; leave = submit.view(main); }
  else if (view === 'history') { name = 'history'; leave = gantt.view(main); }
  else if (view === 'reports') { name = 'reports'; leave = reports.view(main); }
  else if (view === 'job' && Number.isSafeInteger(number) && number > 0) { name = 'job'; leave = job.view(main, number); }
  else leave = matrix.view(main);
  document.title = name === 'job' ? `Job ${number} - Tutti` : `${TITLES[name]} - Tutti`;
  for (const link of document.querySelectorAll('nav a')) {
    const isHere = link.dataset.view === name || (name === 'job' && link.dataset.view === 'jobs');
    if (isHere) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  }
  // Readers of screens begin at the new view.
  if (!isFirst && name !== 'submit') main.focus({ preventScroll: true });
  isFirst = false;
  scrollTo(0, 0);
}

function keys(event) {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || byId('confirm').open;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (KEYS[event.key]) event.preventDefault();
  if (KEYS[event.key]) location.hash = KEYS[event.key];
  if (event.key === '/' ) {
    event.preventDefault();
    location.hash = '#/jobs';
    setTimeout(() => byId('filter')?.focus(), 50);
  }
}

function colours() {
  const button = byId('theme');
  const words = { '': ['Auto', 'as the system'], light: ['Light', 'light'], dark: ['Dark', 'dark'] };
  const set = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
    button.textContent = words[theme][0];
    button.setAttribute('aria-label', `Colours: ${words[theme][1]}`);
  };
  let theme = localStorage.getItem('theme');
  if (!words[theme]) theme = '';
  set(theme);
  button.addEventListener('click', () => {
    theme = { '': 'light', light: 'dark', dark: '' }[theme];
    localStorage.setItem('theme', theme);
    set(theme);
  });
}

// The link to the content is no view.
document.querySelector('.skip').addEventListener('click', (event) => { event.preventDefault(); main.focus(); });
addEventListener('hashchange', show);
addEventListener('keydown', keys);
addEventListener('unhandledrejection', (event) => alertUser(String(event.reason?.message ?? event.reason)));
colours();
show();
loadParams().then(refresh, (error) => alertUser(error.message));
start();
