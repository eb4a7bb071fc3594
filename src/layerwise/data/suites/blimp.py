"""The names in BLiMP: its 67 paradigms and the phenomena they belong to.

BLiMP (Warstadt et al. 2020, "BLiMP: The Benchmark of Linguistic Minimal Pairs for English") has 1,000 pairs in each of
67 paradigms. A number is called a BLiMP score only when the pairs say that they are BLiMP's, by these names; so they
stand here, sorted by phenomenon as the data set sorts them (`linguistics_term`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PAIRS = 1000
"""How many pairs the published set has in each paradigm."""

PHENOMENA: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "anaphor_agreement": ("anaphor_gender_agreement", "anaphor_number_agreement"),
        "argument_structure": (
            *("causative", "drop_argument", "inchoative", "intransitive", "passive_1", "passive_2", "transitive"),
        ),
        "binding": (
            *("principle_A_c_command", "principle_A_case_1", "principle_A_case_2", "principle_A_domain_1"),
            *("principle_A_domain_2", "principle_A_domain_3", "principle_A_reconstruction"),
        ),
        "control_raising": (
            *("existential_there_object_raising", "existential_there_subject_raising", "expletive_it_object_raising"),
            *("tough_vs_raising_1", "tough_vs_raising_2"),
        ),
        "determiner_noun_agreement": (
            *("determiner_noun_agreement_1", "determiner_noun_agreement_2", "determiner_noun_agreement_irregular_1"),
            *("determiner_noun_agreement_irregular_2", "determiner_noun_agreement_with_adj_2"),
            *("determiner_noun_agreement_with_adj_irregular_1", "determiner_noun_agreement_with_adj_irregular_2"),
            "determiner_noun_agreement_with_adjective_1",
        ),
        "ellipsis": ("ellipsis_n_bar_1", "ellipsis_n_bar_2"),
        "filler_gap_dependency": (
            *("wh_questions_object_gap", "wh_questions_subject_gap", "wh_questions_subject_gap_long_distance"),
            *("wh_vs_that_no_gap", "wh_vs_that_no_gap_long_distance", "wh_vs_that_with_gap"),
            "wh_vs_that_with_gap_long_distance",
        ),
        "irregular_forms": ("irregular_past_participle_adjectives", "irregular_past_participle_verbs"),
        "island_effects": (
            *("adjunct_island", "complex_NP_island", "coordinate_structure_constraint_complex_left_branch"),
            *("coordinate_structure_constraint_object_extraction", "left_branch_island_echo_question"),
            *("left_branch_island_simple_question", "sentential_subject_island", "wh_island"),
        ),
        "npi_licensing": (
            *("matrix_question_npi_licensor_present", "npi_present_1", "npi_present_2"),
            *("only_npi_licensor_present", "only_npi_scope", "sentential_negation_npi_licensor_present"),
            "sentential_negation_npi_scope",
        ),
        "quantifiers": (
            *("existential_there_quantifiers_1", "existential_there_quantifiers_2"),
            *("superlative_quantifiers_1", "superlative_quantifiers_2"),
        ),
        "s-selection": ("animate_subject_passive", "animate_subject_trans"),
        "subject_verb_agreement": (
            *("distractor_agreement_relational_noun", "distractor_agreement_relative_clause"),
            *("irregular_plural_subject_verb_agreement_1", "irregular_plural_subject_verb_agreement_2"),
            *("regular_plural_subject_verb_agreement_1", "regular_plural_subject_verb_agreement_2"),
        ),
    }
)
"""Paradigms (`UID`) by phenomenon. The paper counts `s-selection` with `argument_structure`: 12 phenomena."""

PARADIGMS = frozenset(uid for uids in PHENOMENA.values() for uid in uids)
