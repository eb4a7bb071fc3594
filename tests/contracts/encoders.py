"""The encoders of the zoo: of text, of images and films, and of sound."""

from __future__ import annotations

from functools import partial
from typing import Any

from contracts.specimen import WINDOW, specimen

encoder = partial(specimen, "encoder")
vision = partial(specimen, "vision")
audio = partial(specimen, "audio")

# Two convolutions that turn a waveform into frames.
SPEECH: dict[str, Any] = {
    "conv_dim": [8, 8],
    "conv_kernel": [4, 4],
    "conv_stride": [4, 4],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}

# fmt: off
TEXT_ENCODERS = (
    encoder("bert", "BertForMaskedLM", "bert.encoder.layer"),
    encoder("big_bird", "BigBirdForMaskedLM", "bert.encoder.layer", attention_type="original_full"),
    encoder("camembert", "CamembertForMaskedLM", "roberta.encoder.layer"),
    encoder("canine", "CanineModel", "encoder.layer"),
    encoder("clip_text_model", "CLIPTextModel", "encoder.layers"),
    encoder("convbert", "ConvBertForMaskedLM", "convbert.encoder.layer", embedding_size=32),
    encoder("data2vec-text", "Data2VecTextForMaskedLM", "data2vec_text.encoder.layer"),
    encoder("deberta", "DebertaForMaskedLM", "deberta.encoder.layer", relative_attention=True,
        pos_att_type=["c2p", "p2c"]),
    encoder("deberta-v2", "DebertaV2ForMaskedLM", "deberta.encoder.layer", relative_attention=True,
        pos_att_type=["c2p", "p2c"]),
    encoder("distilbert", "DistilBertForMaskedLM", "distilbert.transformer.layer", hidden_dim=48),
    encoder("dpr", "DPRQuestionEncoder", "question_encoder.bert_model.encoder.layer"),
    encoder("electra", "ElectraForMaskedLM", "electra.encoder.layer", embedding_size=16),
    encoder("ernie", "ErnieForMaskedLM", "ernie.encoder.layer"),
    encoder("esm", "EsmForMaskedLM", "esm.encoder.layer", mask_token_id=3, position_embedding_type="rotary"),
    encoder("esmc", "EsmcForMaskedLM", "esmc.layers", num_key_value_heads=4),
    encoder("eurobert", "EuroBertForMaskedLM", "model.layers"),
    encoder("fnet", "FNetForMaskedLM", "fnet.encoder.layer", tpu_short_seq_length=16),
    encoder("gte", "GteForMaskedLM", "gte.layers"),
    encoder("ibert", "IBertForMaskedLM", "ibert.encoder.layer"),
    encoder("jina_embeddings_v3", "JinaEmbeddingsV3ForMaskedLM", "roberta.layers"),
    encoder("layoutlm", "LayoutLMForMaskedLM", "layoutlm.encoder.layer"),
    encoder("layoutlmv3", "LayoutLMv3Model", "encoder.layer", coordinate_size=5, shape_size=6,
        visual_embed=False, hidden_size=32),
    encoder("longformer", "LongformerForMaskedLM", "longformer.encoder.layer", attention_window=[4, 8, 4, 8,
        4]),
    encoder("luke", "LukeForMaskedLM", "luke.encoder.layer", entity_vocab_size=20, entity_emb_size=16),
    encoder("markuplm", "MarkupLMModel", "encoder.layer"),
    encoder("megatron-bert", "MegatronBertForMaskedLM", "bert.encoder.layer"),
    encoder("mobilebert", "MobileBertForMaskedLM", "mobilebert.encoder.layer", embedding_size=16,
        true_hidden_size=16, intra_bottleneck_size=16),
    encoder("modernbert", "ModernBertForMaskedLM", "model.layers", tags="sliding", local_attention=WINDOW,
        global_attn_every_n_layers=2),
    encoder("mpnet", "MPNetForMaskedLM", "mpnet.encoder.layer"),
    encoder("mra", "MraForMaskedLM", "mra.encoder.layer"),
    encoder("nomic_bert", "NomicBertForMaskedLM", "nomic_bert.layers"),
    encoder("nystromformer", "NystromformerForMaskedLM", "nystromformer.encoder.layer", num_landmarks=4,
        segment_means_seq_len=4),
    encoder("rembert", "RemBertForMaskedLM", "rembert.encoder.layer", input_embedding_size=16,
        output_embedding_size=16),
    encoder("roberta", "RobertaForMaskedLM", "roberta.encoder.layer"),
    encoder("roberta-prelayernorm", "RobertaPreLayerNormForMaskedLM", "roberta_prelayernorm.encoder.layer"),
    encoder("roc_bert", "RoCBertForMaskedLM", "roc_bert.encoder.layer", pronunciation_vocab_size=80,
        shape_vocab_size=80, pronunciation_embed_dim=8, shape_embed_dim=8),
    encoder("roformer", "RoFormerForMaskedLM", "roformer.encoder.layer", embedding_size=32),
    encoder("siglip_text_model", "SiglipTextModel", "encoder.layers"),
    encoder("splinter", "SplinterModel", "encoder.layer"),
    encoder("tapas", "TapasForMaskedLM", "tapas.encoder.layer"),
    encoder("ultrabert", "UltrabertForMaskedLM", "model.layers", tags="sliding"),
    encoder("visual_bert", "VisualBertModel", "encoder.layer"),
    encoder("xlm-roberta", "XLMRobertaForMaskedLM", "roberta.encoder.layer"),
    encoder("xlm-roberta-xl", "XLMRobertaXLForMaskedLM", "roberta.encoder.layer"),
    encoder("xmod", "XmodForMaskedLM", "roberta.encoder.layer", languages=["en_XX"],
        default_language="en_XX"),
    encoder("yoso", "YosoForMaskedLM", "yoso.encoder.layer"),
)

VISION_ENCODERS = (
    vision("aimv2_vision_model", "Aimv2VisionModel", "encoder.layers"),
    vision("altclip_vision_model", "AltCLIPVisionModel", "encoder.layers"),
    vision("beit", "BeitForImageClassification", "beit.layers", use_relative_position_bias=True,
        use_absolute_position_embeddings=False, layer_scale_init_value=1.0, out_indices=[1]),
    vision("blip_vision_model", "BlipVisionModel", "encoder.layers"),
    vision("chinese_clip_vision_model", "ChineseCLIPVisionModel", "encoder.layers"),
    vision("clip_vision_model", "CLIPVisionModel", "encoder.layers"),
    vision("data2vec-vision", "Data2VecVisionForImageClassification", "data2vec_vision.encoder.layer",
        use_shared_relative_position_bias=True, layer_scale_init_value=1.0, out_indices=[1]),
    vision("deit", "DeiTForImageClassification", "deit.layers"),
    vision("dinov2", "Dinov2ForImageClassification", "dinov2.encoder.layer", mlp_ratio=2),
    vision("dinov2_with_registers", "Dinov2WithRegistersForImageClassification",
        "dinov2_with_registers.encoder.layer", mlp_ratio=2),
    vision("dinov3_vit", "DINOv3ViTModel", "model.layer"),
    vision("dpt", "DPTModel", "encoder.layer"),
    vision("ijepa", "IJepaForImageClassification", "ijepa.layers"),
    vision("imagegpt", "ImageGPTForImageClassification", "transformer.h"),
    vision("internvl_vision", "InternVLVisionModel", "encoder.layer"),
    vision("mlcd_vision_model", "MLCDVisionModel", "encoder.layers"),
    vision("owlvit_vision_model", "OwlViTVisionModel", "vision_model.encoder.layers"),
    vision("pixio", "PixioModel", "layers"),
    vision("pixtral", "PixtralVisionModel", "transformer.layers"),
    vision("sapiens2", "Sapiens2Model", "model.layer"),
    vision("siglip_vision_model", "SiglipVisionModel", "encoder.layers"),
    vision("timesformer", "TimesformerForVideoClassification", "timesformer.encoder.layer", shape=(2, 3, 16, 16),
        num_frames=2),
    vision("tipsv2_vision_model", "Tipsv2VisionModel", "encoder.layer"),
    vision("videomae", "VideoMAEForVideoClassification", "videomae.encoder.layer", shape=(4, 3, 16, 16), num_frames=4,
        tubelet_size=2),
    vision("vit", "ViTForImageClassification", "vit.layers"),
    vision("vit_msn", "ViTMSNForImageClassification", "vit.layers"),
    vision("vitdet", "VitDetModel", "encoder.layer", window_block_indices=[0, 2], window_size=2,
        residual_block_indices=[]),
    vision("vivit", "VivitForVideoClassification", "vivit.layers", shape=(4, 3, 16, 16), num_frames=4,
        tubelet_size=[2, 4, 4]),
)

AUDIO_ENCODERS = (
    audio("audio-spectrogram-transformer", "ASTForAudioClassification",
        "audio_spectrogram_transformer.layers", shape=(24, 16), num_mel_bins=16, max_length=24, patch_size=8,
        frequency_stride=8, time_stride=8),
    audio("data2vec-audio", "Data2VecAudioModel", "encoder.layers", conv_dim=[8, 8], conv_kernel=[4, 4],
        conv_stride=[4, 4], num_feat_extract_layers=2, num_conv_pos_embeddings=2, conv_pos_kernel_size=3),
    audio("hubert", "HubertModel", "encoder.layers", **SPEECH),
    audio("sew", "SEWModel", "encoder.layers", squeeze_factor=2, **SPEECH),
    audio("unispeech", "UniSpeechModel", "encoder.layers", **SPEECH),
    audio("wav2vec2", "Wav2Vec2Model", "encoder.layers", **SPEECH),
    audio("wav2vec2-bert", "Wav2Vec2BertModel", "encoder.layers", shape=(20, 16), feature_projection_input_dim=16),
    audio("wav2vec2-conformer", "Wav2Vec2ConformerModel", "encoder.layers", **SPEECH),
)
# fmt: on
