"use strict";
// Everything here improves a page that can be read without it.
(() => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  const clock = (ms) => {
    const s = ms / 1000;
    if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
    const whole = Math.floor(s);
    return Math.floor(whole / 60) + ":" + String(whole % 60).padStart(2, "0");
  };

  // ---- copying a command

  const copy = async (text, from) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const range = document.createRange();
      range.selectNodeContents(from);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      return document.execCommand("copy");
    }
  };

  const setUpCopying = (within) => {
    for (const button of all("button[data-copy]", within)) {
      const from = document.getElementById(button.dataset.copy);
      const label = button.textContent;
      button.hidden = false;
      button.addEventListener("click", async () => {
        const copied = await copy(from.textContent, from);
        button.textContent = copied ? "copied" : "select and copy by hand";
        button.toggleAttribute("data-copied", copied);
        setTimeout(() => { button.textContent = label; }, 2000);
      });
    }
  };

  // ---- tables

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent.trim();
  };

  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true }));

  const sortBy = (table, column) => {
    const header = table.tHead.rows[0].cells[column];
    const up = header.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => compare(keyOf(a, column), keyOf(b, column)) * (up ? 1 : -1));
    table.tBodies[0].append(...rows);
  };

  const setUpSorting = (table) => {
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.addEventListener("click", () => sortBy(table, column));
      header.replaceChildren(button);
    });
  };

  const setUpFiltering = (table) => {
    const tools = find(`[data-filters="${table.id}"]`);
    if (!tools) return;
    tools.hidden = false;
    const text = find("input", tools), verdict = find("select", tools), shown = find("output", tools);
    const apply = () => {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      let n = 0;
      for (const row of table.tBodies[0].rows) {
        const content = row.textContent.toLowerCase();
        const fits = words.every((w) => content.includes(w)) && (!verdict || !verdict.value || row.dataset.verdict === verdict.value);
        row.hidden = !fits;
        if (fits) n++;
      }
      shown.textContent = `${n} of ${table.tBodies[0].rows.length} shown`;
    };
    for (const control of [text, verdict]) control?.addEventListener("input", apply);
    apply();
  };

  // ---- the timeline

  // The points of a curve are read back from its path: "M0 0H12V3H40V5".
  const pointsOf = (path) => {
    const points = [];
    let at = 0;
    for (const [, command, first, second] of path.getAttribute("d").matchAll(/([MHV])([\d.]+)(?: ([\d.]+))?/g)) {
      if (command === "M") { at = Number(first); points.push([at, Number(second)]); }
      if (command === "H") at = Number(first);
      if (command === "V") points.push([at, Number(first)]);
    }
    return points;
  };

  const lastBefore = (list, at) => {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle][0] <= at) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  class Chart {
    constructor(figure, data) {
      this.figure = figure;
      this.svg = find("svg.chart", figure);
      this.plot = find("svg.plot", figure);
      this.data = data;
      const [, y, width, height] = this.plot.getAttribute("viewBox").split(" ").map(Number);
      Object.assign(this, { y, height, span: width, from: 0, until: width, at: null });
      this.curves = ["pods", "eps", "bits"].map((name) => [name, pointsOf(find("path." + name, this.plot))]);
      this.listen();
    }

    show(from, until) {
      const least = Math.min(200, this.span);
      const width = clamp(until - from, least, this.span);
      this.from = clamp(from, 0, this.span - width);
      this.until = this.from + width;
      this.plot.setAttribute("viewBox", `${this.from} ${this.y} ${width} ${this.height}`);
      all("text.time", this.svg).forEach((label, i, labels) => {
        label.textContent = clock(this.from + (width * i) / (labels.length - 1));
      });
    }

    zoom(factor) {
      const center = this.at !== null && this.at >= this.from && this.at <= this.until ? this.at : (this.from + this.until) / 2;
      const share = (center - this.from) / (this.until - this.from);
      const width = (this.until - this.from) * factor;
      this.show(center - width * share, center + width * (1 - share));
    }

    pan(share) { const d = (this.until - this.from) * share; this.show(this.from + d, this.until + d); }

    timeAt(event) {
      const box = this.plot.getBoundingClientRect();
      const outer = this.svg.getBoundingClientRect();
      const left = outer.left + outer.width * Number.parseFloat(this.plot.getAttribute("x")) / 100;
      const width = outer.width * Number.parseFloat(this.plot.getAttribute("width")) / 100;
      return clamp(this.from + ((event.clientX - (box.width ? left : 0)) / width) * (this.until - this.from), this.from, this.until);
    }

    point(at) {
      this.at = clamp(at, 0, this.span);
      if (this.at < this.from || this.at > this.until) this.pan((this.at - (this.from + this.until) / 2) / (this.until - this.from));
      const cursor = find("line.cursor", this.plot);
      cursor.setAttribute("x1", this.at);
      cursor.setAttribute("x2", this.at);
      cursor.setAttribute("visibility", "visible");
      find("output.readout", this.figure).textContent = this.describe();
    }

    describe() {
      const parts = [clock(this.at)];
      parts.push(this.curves.map(([name, points]) => `${name}=${points[Math.max(0, lastBefore(points, this.at))]?.[1] ?? 0}`).join(" "));
      const faults = this.data.bands.filter(([from, until]) => from <= this.at && this.at <= until).map((b) => b[2]);
      if (faults.length) parts.push("faults: " + some(faults));
      if (this.data.steps.length) {
        const step = this.data.steps[lastBefore(this.data.steps, this.at)];
        if (step) parts.push("last step: " + step[1]);
      }
      const near = (this.until - this.from) / 150;
      const marks = this.data.marks.filter(([at]) => Math.abs(at - this.at) <= near).map((m) => m[1]);
      if (marks.length) parts.push(some(marks));
      return parts.join("  \u00b7  ");
    }

    // next moves to the neighbouring change of anything.
    next(forward) {
      const moments = new Set(this.data.marks.map((m) => m[0]));
      for (const [, points] of this.curves) for (const p of points) moments.add(p[0]);
      const sorted = [...moments].sort((a, b) => a - b);
      const at = this.at ?? (forward ? -1 : this.span + 1);
      const found = forward ? sorted.find((m) => m > at) : sorted.findLast((m) => m < at);
      if (found !== undefined) this.point(found);
    }

    listen() {
      let from = null;
      const range = find("rect.range", this.plot);
      this.svg.addEventListener("pointerdown", (e) => { if (e.button === 0 && !e.target.closest("a")) from = this.timeAt(e); });
      this.svg.addEventListener("pointermove", (e) => {
        const at = this.timeAt(e);
        this.point(at);
        if (from === null || e.pointerType === "touch") return;
        range.setAttribute("x", Math.min(from, at));
        range.setAttribute("width", Math.abs(at - from));
        range.setAttribute("visibility", "visible");
      });
      const finish = (e) => {
        range.setAttribute("visibility", "hidden");
        if (from === null || e.pointerType === "touch") { from = null; return; }
        const at = this.timeAt(e);
        if (Math.abs(at - from) > (this.until - this.from) / 100) this.show(Math.min(from, at), Math.max(from, at));
        from = null;
      };
      this.svg.addEventListener("pointerup", finish);
      this.svg.addEventListener("pointerleave", finish);
      this.svg.addEventListener("dblclick", () => this.show(0, this.span));
      this.svg.addEventListener("keydown", (e) => {
        const keys = {
          ArrowRight: () => this.next(true), ArrowLeft: () => this.next(false), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5),
          "-": () => this.zoom(2), "0": () => this.show(0, this.span), Home: () => this.point(0), End: () => this.point(this.span),
        };
        if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
        keys[e.key]();
        e.preventDefault();
      });
    }
  }

  const some = (list) => (list.length <= 4 ? list.join("; ") : list.slice(0, 4).join("; ") + `; and ${list.length - 4} more`);

  const dataOf = (data, lane) => {
    const ofLane = (list) => list.filter((entry) => !lane || entry[0] === lane).map((entry) => entry.slice(1));
    return { bands: ofLane(data.bands), steps: lane ? ofLane(data.steps) : [], marks: ofLane(data.marks) };
  };

  const setUpTimeline = (section) => {
    const data = JSON.parse(find("#timeline-data").textContent);
    const figures = all("figure[data-lane]", section);
    const charts = new Map();
    const chart = (lane) => {
      if (!charts.has(lane)) charts.set(lane, new Chart(figures.find((f) => f.dataset.lane === lane), dataOf(data, lane)));
      return charts.get(lane);
    };
    const tools = find(".tools", section), choice = find("select", tools);
    tools.hidden = false;
    const choose = () => {
      for (const figure of figures) figure.hidden = figure.dataset.lane !== choice.value;
      chart(choice.value);
    };
    choice.addEventListener("change", choose);
    choose();
    const actions = {
      in: (c) => c.zoom(0.5), out: (c) => c.zoom(2), left: (c) => c.pan(-0.5), right: (c) => c.pan(0.5), reset: (c) => c.show(0, c.span),
    };
    for (const button of all("button[data-zoom]", tools)) {
      button.addEventListener("click", () => actions[button.dataset.zoom](chart(choice.value)));
    }
  };

  // ---- stories

  const openTarget = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const details = target.closest("details");
    if (!details) return;
    details.open = true;
    find("summary", details)?.focus();
    details.scrollIntoView();
  };

  const setUp = () => {
    setUpCopying(document);
    for (const table of all("table[data-sortable]")) { setUpSorting(table); setUpFiltering(table); }
    const timeline = document.getElementById("timeline");
    if (timeline && find("#timeline-data")) setUpTimeline(timeline);
  };

  // ---- a page that grows: asks its own server, and nobody else

  const follow = () => {
    const live = document.body.dataset.live;
    if (!live) return;
    let seen = live;
    const again = () => setTimeout(refresh, 2000);
    const refresh = async () => {
      try {
        const answer = await fetch("state");
        const state = await answer.text();
        const busy = document.activeElement && document.activeElement !== document.body;
        if (state !== seen && !busy && getSelection().isCollapsed) {
          const text = await (await fetch("./")).text();
          find("main").replaceWith(new DOMParser().parseFromString(text, "text/html").querySelector("main"));
          seen = state;
          setUp();
        }
      } catch {
        find("#live").textContent = "The run has ended or cannot be reached; this is the last that was seen.";
        return;
      }
      again();
    };
    again();
  };

  setUp();
  addEventListener("hashchange", openTarget);
  openTarget();
  follow();
})();
