"""Every result as one document, drawn for terminals, Markdown, pages, notebooks and JSON.

A function `of_…` of the package that knows the result returns a `Doc` (`doc.py`): the result as its title, and parts
below it. Nobody draws by hand:

    doc = Doc(
        "val accuracy 0.91 in epoch 3",                      # what came of it; the heading of a page
        [
            Lines([("kept", "epoch 3"), ("note", "…")]),      # label and text, or a `Line` with a style
            Table(epochs, [
                Col("epoch", "number", is_head=True),         # an attribute of the row, or a function of it
                Col("loss", lambda row: row.measures["loss"], ".4f"),  # a format; None is drawn as `-`
                Col("data", "digest", text=lambda row: row.digest[-8:]),
            ], title="Epochs"),
            Chart([Series("train", points), Series("validation", others, "second")], title="loss", x="epoch"),
            Section("Config", [Code(text, title="The composed config", is_folded=True)], only=["html"]),
        ],
        over="Run outputs/1",                                 # what it is of, above the heading
        json=lambda: {…},                                     # what JSON has, else the rows of the first table
    )
    RENDER["md"](doc)                                         # `render.py`: text, md, html, json
    show(doc)                                                 # print it, in colours where there are any
    fragment(doc)                                             # for notebooks; `pieces`: a page, bit by bit

- Columns, lines, charts and parts of which there is nothing are left out by the renderers, not by who makes them.
- `only` names the formats that a part is for: text, md, html, notebook; charts and images are for pages.
- Terminals print titles of sections alone; pages and Markdown those of all parts.
- A confusion matrix is a table with `Col.share`, bars beside numbers are `Col.bar`, figures in large
  letters `Lines(…, is_large=True)`, facts with a link a `Link`, cells with thumbnails a `Picture` or a list of them.
- A style is good, bad, mark, accent, soft or strong: a class of pages, a colour of terminals.

Nothing here knows TensorFlow, matplotlib or what is drawn; jinja2 is loaded when a page is made.
"""
