"""Every model type that layerwise is tested on: the supported, and the refused with their reasons."""

from __future__ import annotations

from contracts.decoders import DECODERS, EXPERTS, LATENT, SLIDING_AND_FULL
from contracts.encoders import AUDIO_ENCODERS, SPEECH, TEXT_ENCODERS, VISION_ENCODERS
from contracts.specimen import DEPTH, OMIT, VOCABULARY, WIDTH, WINDOW, refused

SUPPORTED = tuple(
    sorted((*DECODERS, *TEXT_ENCODERS, *VISION_ENCODERS, *AUDIO_ENCODERS), key=lambda one: one.model_type)
)

# Zamba runs one attention block, shared, between its recurrent ones.
SHARED_AND_RECURRENT = ["linear_attention", "hybrid", "linear_attention", "hybrid", "linear_attention"]

# fmt: off
REFUSED = (
    refused("encoder", "albert", "AlbertForMaskedLM", "no nn.ModuleList of repeated blocks", embedding_size=16),
    refused("vision", "convnext", "ConvNextForImageClassification", "fails when its layers are run one by one",
        hidden_sizes=[8, 16], depths=[2, 2], num_stages=2, num_hidden_layers=2),
    refused("encoder", "flaubert", "FlaubertWithLMHeadModel", "changes the hidden state between blocks",
        emb_dim=WIDTH, n_layers=DEPTH, n_heads=4),
    refused("encoder", "funnel", "FunnelForMaskedLM", "does not run its 3 blocks once each and in order",
        num_hidden_layers=OMIT, block_sizes=[2, 2, 2], d_model=WIDTH, n_head=4, d_head=8, d_inner=48),
    refused("decoder", "gemma3n_text", "Gemma3nForCausalLM", "fails when its layers are run one by one",
        head_dim=8, sliding_window=WINDOW, num_kv_shared_layers=2, vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=8, altup_num_inputs=2, laurel_rank=4,
        activation_sparsity_pattern=[0.0] * DEPTH, layer_types=SLIDING_AND_FULL),
    refused("decoder", "gemma4_text", "Gemma4ForCausalLM", "per_layer_config", head_dim=8, global_head_dim=8,
        sliding_window=WINDOW, vocab_size_per_layer_input=VOCABULARY, hidden_size_per_layer_input=8,
        num_kv_shared_layers=2, layer_types=SLIDING_AND_FULL),
    refused("decoder", "hrm_text", "HrmTextForCausalLM", "has 2 stacks"),
    refused("encoder", "lilt", "LiltModel", "more than the hidden state", hidden_size=96, channel_shrink_ratio=2),
    refused("decoder", "longcat_flash", "LongcatFlashForCausalLM", "when their position changes",
        ffn_hidden_size=48, expert_ffn_hidden_size=16, zero_expert_num=1, moe_topk=2, num_layers=DEPTH,
        num_hidden_layers=OMIT, **EXPERTS, **LATENT),
    refused("decoder", "rwkv", "RwkvForCausalLM", "fails when its layers are run one by one",
        attention_hidden_size=WIDTH),
    refused("encoder", "squeezebert", "SqueezeBertForMaskedLM", "does not run its 5 blocks once each and in order",
        embedding_size=WIDTH, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1,
        intermediate_groups=2, output_groups=2),
    refused("vision", "swin", "SwinForImageClassification", "changes the shape of the hidden state", embed_dim=16,
        depths=[2, 2], num_heads=[2, 4], window_size=2, num_attention_heads=[2, 4], num_hidden_layers=2),
    refused("encoder", "t5", "T5EncoderModel", "more than the hidden state", d_model=WIDTH, d_kv=8, d_ff=48),
    refused("vision", "vit_mae", "ViTMAEModel", "different outputs for the same input"),
    refused("audio", "wavlm", "WavLMModel", "more than the hidden state", **SPEECH),
    refused("encoder", "xlm", "XLMWithLMHeadModel", "changes the hidden state between blocks", emb_dim=WIDTH,
        n_layers=DEPTH, n_heads=4),
    refused("decoder", "xlnet", "XLNetLMHeadModel", "a second stream beside the hidden state", d_inner=48,
        d_head=8, max_position_embeddings=OMIT),
    refused("vision", "yolos", "YolosModel", "changes the hidden state between blocks", num_detection_tokens=3,
        image_size=[16, 16]),
    refused("decoder", "zamba", "ZambaForCausalLM", "share parameters", mamba_d_state=8, n_mamba_heads=2,
        layers_block_type=SHARED_AND_RECURRENT),
    refused("decoder", "zamba2", "Zamba2ForCausalLM", "share parameters", layers_block_type=SHARED_AND_RECURRENT,
        mamba_d_state=8, mamba_headdim=16, mamba_ngroups=1, n_mamba_heads=4, num_mem_blocks=1, chunk_size=4),
    refused("decoder", "zaya", "ZayaForCausalLM", "more than the hidden state",
        **{**EXPERTS, "num_experts_per_tok": 1}),
)
# fmt: on
