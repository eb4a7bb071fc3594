"""A plan drawn on a page, by the code that draws it in a report.

    ```{plan} 0-4 (5|6|7) 8-11
    What the reader should see in it.
    ```

The picture is the wiring of the plan (`layerwise.page.draw_wiring`); beside it stand the plan, what it does in words
and what it costs, all three computed by layerwise when the page is built.
"""

from __future__ import annotations

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from layerwise.page import draw_wiring
from layerwise.plan import Plan
from layerwise.plan.explain import explain

DEPTH = 12  # of the demo model


class PlanPicture(SphinxDirective):
    """The directive; its argument is a plan, its content is prose."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar = {"depth": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        plan = Plan.parse(self.arguments[0])
        depth = self.options.get("depth", DEPTH)
        drawn = nodes.raw("", draw_wiring(plan, depth, title=f"The wiring of {plan}"), format="html")
        words = nodes.container(
            "", nodes.paragraph("", "", nodes.literal(str(plan), str(plan))), classes=["plan-words"]
        )
        words += nodes.bullet_list("", *(_item(line) for line in explain(plan, depth).splitlines()))
        words += nodes.paragraph("", cost(plan), classes=["plan-cost"])
        words += self.parse_content_to_nodes()
        return [nodes.container("", nodes.container("", drawn, classes=["plan-drawn"]), words, classes=["plan"])]


def _item(text: str) -> nodes.list_item:
    return nodes.list_item("", nodes.paragraph("", text))


def cost(plan: Plan) -> str:
    """What the plan costs, in one line.

    >>> cost(Plan.parse("0-4 (5|6|7) 8-11"))
    '12 layer evaluations in 10 sequential stages; 12 layers of weights; 12 KV slots'
    """
    bill = plan.cost()
    return (
        f"{bill.evaluations} layer evaluations in {bill.stages} sequential stages;"
        f" {bill.weights} layers of weights; {bill.slots} KV slots"
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("plan", PlanPicture)
    return {"parallel_read_safe": True}
