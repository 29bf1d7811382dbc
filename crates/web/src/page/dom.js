// Elements and words. All text from outside becomes a text node.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'class') node.setAttribute('class', value);
    else if (key === 'vars') for (const [name, it] of Object.entries(value)) node.style.setProperty(name, it);
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat(9).filter((it) => it !== null && it !== undefined && it !== false));
  return node;
}

export const h = (name, props, ...children) => fill(document.createElement(name), props, children);
export const svg = (name, props, ...children) => fill(document.createElementNS(SVG, name), props, children);
export const byId = (id) => document.getElementById(id);

// A colour for each job: neighbours in number differ much.
export const hue = (job) => ({ '--hue': String(Math.round((job * 137.5) % 360)) });
export const chip = (job) => h('span', { class: 'chip', vars: hue(job), 'aria-hidden': 'true' });
export const badge = (word) => h('span', { class: `state ${word}` }, word);

export function duration(ms) {
  if (ms === null || ms === undefined) return '-';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return ms < 10000 ? `${(ms / 1000).toFixed(1)} s` : `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function bytes(count) {
  if (count === null || count === undefined) return '-';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${count < 10 && at > 0 ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

export function clock(ms) {
  const at = new Date(ms);
  const time = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}

// A job as a link to its page.
export const jobLink = (number) => h('a', { class: 'job-link', href: `#/job/${number}` }, chip(number), String(number));

export const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

export function say(text) { byId('said').textContent = text; }

export function alertUser(text) {
  const box = byId('alert');
  box.hidden = !text;
  if (box.textContent !== text) box.textContent = text || '';
}

// Replaces the content of a box. A link or button that had the focus has it again.
export function replace(box, ...children) {
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  const href = focused?.getAttribute('href');
  box.replaceChildren(...children);
  if (!focused) return;
  box.querySelector(href ? `a[href="${CSS.escape(href)}"]` : focused.localName)?.focus({ preventScroll: true });
}

// Asks before something is done; whether it is wanted.
export function confirmed(title, text, yes) {
  const dialog = byId('confirm');
  byId('confirm-title').textContent = title;
  byId('confirm-text').textContent = text;
  byId('confirm-yes').textContent = yes;
  dialog.returnValue = 'no';
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener('close', () => done(dialog.returnValue === 'yes'), { once: true });
  });
}

// A table. Columns: [title, class]; cells of a row are nodes or texts.
export function table(label, columns, rows) {
  return h('div', { class: 'scroll' }, h('table', { class: 'stack', 'aria-label': label },
    h('thead', null, h('tr', null, columns.map(([title, kind]) => h('th', { scope: 'col', class: kind }, title)))),
    h('tbody', null, rows.map((cells) => h('tr', null, cells.map((cell, at) => {
      const [title, kind] = columns[at];
      const named = ['State', 'Job', 'Node', 'Name', 'Why or where'].includes(title) ? null : title;
      return h('td', { class: kind, 'data-title': named }, cell);
    }))))));
}
