"""Draw idea.svg, the figure of the landing page: `python docs/figures/idea.py`."""

import random
from pathlib import Path

ROW, GAP, TOP = 74, 14, 34
GREY, RED, BLUE = "#73808e", "#c8372d", "#2f6fb3"  # legible on white and on black
BAGS = ([0, 1, 0, 0, 1], [0, 0, 0], [1, 0, 1, 1, 0, 0])

draw = random.Random(4)


def cell(x, y, look, colour):
    """A cell with its nucleus; the nucleus of a sick one is larger."""
    radius, right, down = look
    return (
        f'<circle cx="{x}" cy="{y}" r="16" fill="{colour}" fill-opacity=".18" '
        f'stroke="{colour}" stroke-width="1.6"/>'
        f'<circle cx="{x + right:.1f}" cy="{y + down:.1f}" r="{radius:.1f}" fill="{colour}" '
        'fill-opacity=".75"/>'
    )


def box(x, y, width):
    """The outline of a bag."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{ROW}" rx="12" fill="{GREY}" '
        f'fill-opacity=".07" stroke="{GREY}" stroke-opacity=".5"/>'
    )


height = TOP + len(BAGS) * (ROW + GAP)
middle = TOP + (len(BAGS) * (ROW + GAP) - GAP) / 2
out = [
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 664 {height}" '
    f'font-family="system-ui, sans-serif" font-size="14" fill="{GREY}">',
    '<text x="4" y="19" font-weight="600">one count per bag …</text>',
    '<text x="380" y="19" font-weight="600">… a probability for every item</text>',
    f'<path d="M322 {middle} H368 m-9 -7 l9 7 l-9 7" fill="none" stroke="{GREY}" '
    'stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"/>',
]
for row, bag in enumerate(BAGS):
    top = TOP + row * (ROW + GAP)
    out += [box(4, top, 240), box(380, top, 280)]
    out.append(
        f'<text x="254" y="{top + ROW / 2 + 6}" font-size="17" font-weight="600">'
        f"{sum(bag)} of {len(bag)}</text>"
    )
    for i, sick in enumerate(bag):
        size = (9 if sick else 5) + draw.uniform(-1, 1)
        look = (size, draw.uniform(-3, 3), draw.uniform(-3, 3))
        p = draw.uniform(0.9, 0.98) if sick else draw.uniform(0.02, 0.1)
        out.append(cell(28 + 38 * i, top + ROW / 2, look, GREY))
        out.append(cell(405 + 46 * i, top + 27, look, RED if sick else BLUE))
        out.append(f'<text x="{405 + 46 * i}" y="{top + 63}" text-anchor="middle">{p:.2f}</text>')
out.append("</svg>\n")
Path(__file__).with_name("idea.svg").write_text("\n".join(out), encoding="utf-8")
