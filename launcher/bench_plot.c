/* Both axes are logarithmic: sizes by powers of two, times by powers of ten.  Each panel has the span of its own
 * points, and says at each end of each axis what stands there.  Colours come from a style sheet that asks for the
 * reader's scheme. */
#include "launcher/bench_plot.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 3, PANEL_WIDTH = 320, PANEL_HEIGHT = 220, LEFT = 64, RIGHT = 14, TOP = 40, BOTTOM = 34, HEAD = 56 };

/* Points [first, end) of one panel, and their spans. */
struct panel {
    const struct bench_point *points;
    size_t count;
    double low_bytes;
    double high_bytes;
    double low_us;
    double high_us;
};

static bool same_panel(const struct bench_point *a, const struct bench_point *b)
{
    return a->target == b->target && a->point.operation == b->point.operation &&
           a->point.run_bytes == b->point.run_bytes;
}

static void span(struct panel *panel, double us)
{
    if (us <= 0)
        return;
    panel->low_us = panel->low_us <= 0 || us < panel->low_us ? us : panel->low_us;
    panel->high_us = us > panel->high_us ? us : panel->high_us;
}

static struct panel panel_at(const struct bench_point *points, size_t count, size_t first)
{
    struct panel panel = {.points = points + first};

    while (first + panel.count < count && same_panel(&points[first], &points[first + panel.count])) {
        const struct bench_point *point = &panel.points[panel.count++];

        for (int checks = 0; checks < BENCH_CHECKS; checks++)
            span(&panel, point->result.us[checks]);
        span(&panel, point->result.raw_us);
    }
    panel.low_bytes = (double)panel.points[0].point.bytes;
    panel.high_bytes = (double)panel.points[panel.count - 1].point.bytes;
    return panel;
}

/* Where value stands between low and high, from 0 to 1, on a logarithmic scale. */
static double place(double value, double low, double high)
{
    return high > low && low > 0 ? log(value / low) / log(high / low) : 0.5;
}

static double us_of(const struct bench_point *point, int series)
{
    return series < BENCH_CHECKS ? point->result.us[series] : point->result.raw_us;
}

/* One line through a panel's points, with a dot at each. */
static void add_series(const struct panel *panel, int series, const char *class, struct text *out)
{
    double width = PANEL_WIDTH - LEFT - RIGHT;
    double height = PANEL_HEIGHT - TOP - BOTTOM;
    struct text dots = {0};
    bool any = false;

    for (size_t i = 0; i < panel->count; i++) {
        double us = us_of(&panel->points[i], series);
        double x = LEFT + width * place((double)panel->points[i].point.bytes, panel->low_bytes, panel->high_bytes);
        double y = TOP + height * (1 - place(us, panel->low_us, panel->high_us));

        if (us <= 0)
            continue;
        if (!any)
            text_add(out, "<polyline class=\"%s\" points=\"", class);
        text_add(out, "%s%.1f,%.1f", any ? " " : "", x, y);
        text_add(&dots,
                 "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"><title>%zu bytes: %.2f us</title>"
                 "</circle>\n",
                 class, x, y, panel->points[i].point.bytes, us);
        any = true;
    }
    if (any)
        text_add(out, "\"/>\n%s", text_string(&dots));
    text_done(&dots);
}

/* "64 KiB": a size as it was asked for. */
static void add_bytes(struct text *out, double bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB"};
    int i = 0;

    for (; i < 3 && bytes >= 1024; i++)
        bytes /= 1024;
    text_add(out, "%.4g %s", bytes, unit[i]);
}

/* A name comes from the topology: what means something to XML is written as an entity. */
static void add_escaped(struct text *out, const char *name)
{
    for (; *name; name++) {
        if (strchr("<>&\"'", *name) || (unsigned char)*name < ' ')
            text_add(out, "&#%d;", (unsigned char)*name < ' ' ? ' ' : *name);
        else
            text_add_bytes(out, name, 1);
    }
}

static void add_panel(const struct panel *panel, size_t number, struct text *out)
{
    const struct bench_point *first = panel->points;
    int x = (int)(number % COLUMNS) * PANEL_WIDTH;
    int y = HEAD + (int)(number / COLUMNS) * PANEL_HEIGHT;
    int right = PANEL_WIDTH - RIGHT;
    int bottom = PANEL_HEIGHT - BOTTOM;

    text_add(out, "<g transform=\"translate(%d %d)\">\n<text class=\"name\" x=\"%d\" y=\"16\">", x, y, LEFT);
    add_escaped(out, first->target->name);
    text_add(out, ": %s</text>\n<text x=\"%d\" y=\"31\">%d ranks", operation_name(first->point.operation), LEFT,
             first->target->size);
    if (first->point.run_bytes)
        text_add(out, ", runs of %zu bytes", first->point.run_bytes);
    text_add(out, "</text>\n<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, bottom, right);
    text_add(out, "<text x=\"%d\" y=\"%d\">", LEFT, bottom + 15);
    add_bytes(out, panel->low_bytes);
    text_add(out, "</text>\n<text class=\"end\" x=\"%d\" y=\"%d\">", right, bottom + 15);
    add_bytes(out, panel->high_bytes);
    text_add(out, "</text>\n<text class=\"end\" x=\"%d\" y=\"%d\">%.3g us</text>\n", LEFT - 5, TOP + 9, panel->high_us);
    text_add(out, "<text class=\"end\" x=\"%d\" y=\"%d\">%.3g us</text>\n", LEFT - 5, bottom, panel->low_us);
    add_series(panel, BENCH_CHECKS, "mpi", out);
    if (!first->target->is_route)
        add_series(panel, CHECKS_FULL, "full", out);
    add_series(panel, CHECKS_LIGHT, "light", out);
    text_add(out, "</g>\n");
}

static void add_head(size_t panels, const char *title, struct text *out)
{
    static const char *const style =
        "text{font:12px sans-serif;fill:#222}.name{font-weight:bold}.end{text-anchor:end}\n"
        "path,polyline{fill:none;stroke-width:1.5}.axis{stroke:#888}rect{fill:#fff}\n"
        ".light{stroke:#0060c0}.full{stroke:#00804a;stroke-dasharray:6 3}.mpi{stroke:#c04000;stroke-dasharray:2 3}\n"
        "circle.light{fill:#0060c0}circle.full{fill:#00804a}circle.mpi{fill:#c04000}\n"
        "@media "
        "(prefers-color-scheme:dark){text{fill:#ddd}rect{fill:#181818}.light{stroke:#60b0ff}.full{stroke:#40d090}"
        ".mpi{stroke:#ff9050}circle.light{fill:#60b0ff}circle.full{fill:#40d090}circle.mpi{fill:#ff9050}}\n";
    size_t columns = panels < COLUMNS ? panels : COLUMNS;
    int width = (int)(columns ? columns : 1) * PANEL_WIDTH;
    int height = HEAD + (int)((panels + COLUMNS - 1) / COLUMNS) * PANEL_HEIGHT;

    text_add(out,
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
             "<style>%s</style>\n<rect width=\"%d\" height=\"%d\"/>\n<text class=\"name\" x=\"14\" y=\"20\">",
             width, height, width, height, style, width, height);
    add_escaped(out, title);
    text_add(out, "</text>\n<path class=\"light\" d=\"M14 36h24\"/><text x=\"42\" y=\"40\">ferry</text>\n"
                  "<path class=\"full\" d=\"M90 36h24\"/><text x=\"118\" y=\"40\">checks: full</text>\n"
                  "<path class=\"mpi\" d=\"M206 36h24\"/><text x=\"234\" y=\"40\">plain MPI</text>\n");
}

void bench_plot_svg(const struct bench_point *points, size_t count, const char *title, struct text *out)
{
    size_t panels = 0;

    for (size_t at = 0; at < count; panels++)
        at += panel_at(points, count, at).count;
    add_head(panels, title, out);
    for (size_t at = 0, number = 0; at < count; number++) {
        struct panel panel = panel_at(points, count, at);

        add_panel(&panel, number, out);
        at += panel.count;
    }
    text_add(out, "</svg>\n");
}
