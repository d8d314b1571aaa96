"""How rules are compiled: up to the code that their callers take in, and no further.

A rule is only ever called by kernels, so it needs no machine code of its own. Numba would optimise each one together
with everything it calls and turn it into machine code, only for each of its callers to do the same all over again;
deep down that is most of the time it takes to compile. Here the kernel does it, once, for everything in it. A kernel
that another one calls is taken in likewise.
"""

from __future__ import annotations

import types as python_types
from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes, MakeFunctionToJitFunction

FOR_NEW_ARRAYS = {NopythonRewrites}
"""A pass for sums and products of whole arrays, which no rule can contain: it could not make the array they come to."""
FOR_CLOSURES = {InlineClosureLikes, MakeFunctionToJitFunction}
"""Passes for functions inside functions."""


class Unfinished(JITCodeLibrary):
    """The code of a rule and of all it calls, neither optimised nor turned into machine code."""

    def finalize(self) -> None:
        """Nothing is put together: callers take in each of `parts` once, however many of their rules call it."""
        self._finalized = True

    def parts(self) -> list[JITCodeLibrary]:
        """What callers need: this rule, and all that it calls."""
        reached = dict.fromkeys(part for library in self._linking_libraries for part in _parts(library))
        return [self, *reached]

    def _optimize_functions(self, module: Any) -> None:
        """Numba's own quick round, without a look at functions that are only mentioned here."""
        module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)


def _parts(library: JITCodeLibrary) -> list[JITCodeLibrary]:
    return library.parts() if isinstance(library, Unfinished) else [library]


class Simplified(Unfinished):
    """The same after one quick round of optimising, by which LLVM sees better what is worth copying into callers."""

    def parts(self) -> list[JITCodeLibrary]:
        """All in one."""
        return [self]

    def finalize(self) -> None:
        """Put together what callers will need, and make it smaller."""
        for library in super().parts()[1:]:
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        super().finalize()
        passes, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=self._codegen._opt_level, cost="cheap"
        )
        passes.run(self._final_module, builder)


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerRule(NativeLowering):
    """Makes the code of a rule, and leaves the rest to the kernel it ends up in."""

    _name = "lower_rule"
    library = Unfinished

    def run_pass(self, state: Any) -> bool:
        """Numba's own lowering, without its last step."""
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        entry_point: Any = [].append  # what callers look a rule up by: any builtin that is nobody else's
        state.targetctx.insert_user_function(entry_point, state.cr.fndesc, state.library.parts())
        state.cr = state.cr._replace(cfunc=entry_point)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerInnerKernel(LowerRule):
    """Makes the code of a kernel that other kernels call."""

    _name = "lower_inner_kernel"
    library = Simplified


class RuleCompiler(CompilerBase):
    """Numba's compiler with `LowerRule` at its end."""

    lowering: type[LowerRule] = LowerRule
    needless = FOR_NEW_ARRAYS

    def define_pipelines(self) -> list[Any]:
        """The passes a rule goes through."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        needless = self.needless | (set() if _has_closures(self.state.func_id.code) else FOR_CLOSURES)
        passes.passes = [
            (self.lowering if step is NativeLowering else step, why)
            for step, why in passes.passes
            if step not in needless
        ]
        passes.finalize()
        return [passes]


class InnerKernelCompiler(RuleCompiler):
    """The same for a kernel that other kernels call."""

    lowering = LowerInnerKernel
    needless: set[Any] = set()


def _has_closures(code: python_types.CodeType) -> bool:
    return any(isinstance(constant, python_types.CodeType) for constant in code.co_consts)


def compile_quickly(compiled: Any, kinds: tuple[Any, ...]) -> Any:
    """Compile a rule for arguments of these types, unless that is done. As Numba does it, without its stopwatches: each
    rule that is compiled inside of others would be timed for all of them.
    """
    if kinds not in compiled.overloads:
        with compiled._compiling_counter:
            compiled.add_overload(compiled._compiler.compile(kinds, None))
    return compiled.overloads[kinds].entry_point


def widened(kind: Any) -> Any:
    """The type that a rule takes an argument as: signed integers of all sizes are one, or it would be compiled for each."""
    kind = types.unliteral(kind)
    return types.int64 if isinstance(kind, types.Integer) and getattr(kind, "signed", False) else kind
