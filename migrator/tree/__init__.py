"""The LibCST side: everything that knows LibCST is in this folder.

Rules name `ast` nodes and say what becomes of them (`migrator.edits`). Here the same nodes are
found in the LibCST tree of the source (`node_places`), and only the branches that lead to an edit
are rebuilt (`editor`, with `expressions` and `blocks`). White space and comments elsewhere stay.
"""

from libcst import ParserSyntaxError

from migrator.tree.editor import apply
from migrator.tree.node_places import Tree, UnplacedEdit
from migrator.tree.partial_source import unconcerned

__all__ = ["ParserSyntaxError", "Tree", "UnplacedEdit", "apply", "unconcerned"]
