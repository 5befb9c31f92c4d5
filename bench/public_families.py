"""Small models of public packages, made and called as their users do: what `public_models.py` compares.

Each is a function without arguments that gives a module, and one that calls it and gives a loss. `torch` is
whatever library is imported under that name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

WORDS, BATCH, LENGTH = 64, 2, 12


class Model(NamedTuple):
    """A module, and its loss."""

    make: Callable[[], Any]
    loss: Callable[[Any], Any]


def numbers(*shape: int, seed: int = 1) -> Any:
    """Normal numbers, the same in every library."""
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(drawn.astype(np.float32))


def words(*shape: int) -> Any:
    """Indices of words, none of them a special one."""
    return torch.from_numpy(np.random.default_rng(0).integers(3, WORDS, shape))


def loss_of(result: Any) -> Any:
    """The loss that a model gives, or the mean square of what it gives."""
    if getattr(result, "loss", None) is not None:
        return result.loss
    if isinstance(result, dict) and "out" in result:
        result = result["out"]
    parts = [result] if hasattr(result, "ndim") else list(result)
    return sum(part.pow(2).mean() for part in parts if hasattr(part, "pow"))


# ----- transformers -----

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
TEXT = SIZES | {"vocab_size": WORDS, "max_position_embeddings": 64}
GPT = SPECIAL | {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
SEQUENCES = SPECIAL | {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "max_position_embeddings": 64, "decoder_start_token_id": 1,
}  # fmt: skip
T5 = {
    "vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
IMAGES = SIZES | {"image_size": 16, "patch_size": 4, "num_channels": 3}
STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
SOUND = SIZES | {
    "vocab_size": WORDS, "conv_dim": (8, 8), "conv_stride": (4, 2), "conv_kernel": (5, 3),
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "layerdrop": 0.0,
}  # fmt: skip
SERIES = {
    "prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "d_model": 16, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16, "num_time_features": 1,
}  # fmt: skip
LATENT = {
    "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "q_lora_rank": 8,
    "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8,
    "moe_intermediate_size": 16, "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip
SHARED = {"num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}

# What a decoder's configuration has beside the usual sizes.
DECODERS: dict[str, dict[str, Any]] = {
    "Llama": {}, "Mistral": {"sliding_window": 6}, "Qwen2": {}, "Qwen3": {"head_dim": 8},
    "Gemma": {"head_dim": 8}, "Gemma2": {"head_dim": 8, "sliding_window": 6},
    "Mixtral": {"num_local_experts": 4},
    "Phi": {}, "Phi3": {}, "StableLm": {}, "Cohere": {}, "Olmo2": {}, "Starcoder2": {}, "Granite": {},
    "Qwen2Moe": SHARED,
    "Helium": {"head_dim": 8}, "Glm": {"head_dim": 8}, "DeepseekV3": LATENT,
}  # fmt: skip
OTHER_DECODERS: dict[str, dict[str, Any]] = {
    "GPT2LMHead": GPT, "GPTJFor": GPT | {"rotary_dim": 4}, "GPTNeoXFor": TEXT | SPECIAL,
    "GPTNeoFor": SPECIAL | {
        "vocab_size": WORDS, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64,
        "attention_types": [[["global", "local"], 1]], "window_size": 4,
    },
    "OPTFor": SPECIAL | {
        "vocab_size": WORDS, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 64, "word_embed_proj_dim": 32,
    },
    "BloomFor": SPECIAL | {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "FalconFor": SPECIAL | SIZES | {"vocab_size": WORDS},
    "MambaFor": SPECIAL | {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "Mamba2For": SPECIAL | {
        "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "num_heads": 8,
        "head_dim": 8, "n_groups": 2, "chunk_size": 4,
    },
}  # fmt: skip
POSITIONS = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": {}, "Roberta": {}, "Electra": {"embedding_size": 16}, "Deberta": POSITIONS,
    "DebertaV2": POSITIONS | {"position_buckets": 8}, "Albert": {"embedding_size": 16}, "ConvBert": {},
    "MobileBert": {
        "embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16,
        "num_feedforward_networks": 1,
    },
    "RoFormer": {}, "MPNet": {}, "Camembert": {}, "XLMRoberta": {}, "BigBird": {}, "Ernie": {},
    "Nystromformer": {}, "Longformer": {"attention_window": [4, 4]}, "ModernBert": {},
}  # fmt: skip
TRANSLATORS = ["Bart", "MBart", "Pegasus", "Blenderbot", "M2M100"]
LOOKERS = ["ViT", "DeiT", "Dinov2", "Beit", "ViTMSN", "Data2VecVision"]


def of_package(name: str, config: str, settings: dict[str, Any], call: Callable[[], Any]) -> Model:
    """A model of `transformers`, by the names of its class and its configuration's."""
    package = importlib.import_module("transformers")
    return Model(
        lambda: getattr(package, name)(getattr(package, f"{config}Config")(**settings)),
        lambda model: loss_of(model(**call())),
    )


def text() -> dict[str, Any]:
    """Words whose next ones are asked for."""
    given = words(BATCH, LENGTH)
    return {"input_ids": given, "labels": given, "attention_mask": torch.ones_like(given)}


def words_alone() -> dict[str, Any]:
    """The same without a mask."""
    given = words(BATCH, LENGTH)
    return {"input_ids": given, "labels": given}


def gaps() -> dict[str, Any]:
    """Sentences of two lengths."""
    mask = np.arange(LENGTH)[None] < np.array([[LENGTH], [LENGTH - 4]])
    return text() | {"attention_mask": torch.from_numpy(mask.astype(np.int64))}


def translation() -> dict[str, Any]:
    """Words, and those of the answer."""
    return {"input_ids": words(BATCH, LENGTH), "labels": words(BATCH, 7)}


def images(size: int = 16) -> dict[str, Any]:
    """Two images and their classes."""
    return {"pixel_values": numbers(BATCH, 3, size, size), "labels": torch.tensor([0, 1])}


def images_with_text() -> dict[str, Any]:
    """Two images and what is said of them."""
    return {
        "input_ids": words(BATCH, LENGTH), "pixel_values": numbers(BATCH, 3, 16, 16), "return_loss": True,
    }  # fmt: skip


def history() -> dict[str, Any]:
    """Series, and how they go on."""
    return {
        "past_values": numbers(2, 10).abs(), "past_time_features": numbers(2, 10, 1),
        "past_observed_mask": torch.ones(2, 10), "future_values": numbers(2, 4).abs(),
        "future_time_features": numbers(2, 4, 1),
    }  # fmt: skip


def transformers() -> dict[str, Model]:
    """Language models, translators, encoders, of images, of sound, of both, of series."""
    found = {}
    for name, more in DECODERS.items():
        settings = TEXT | SPECIAL | {"num_key_value_heads": 2} | more
        found[name] = of_package(f"{name}ForCausalLM", name, settings, text)
    for name, settings in OTHER_DECODERS.items():
        config = name.removesuffix("For").removesuffix("LMHead")
        ending = "Model" if name.endswith("LMHead") else "CausalLM"
        call = words_alone if "Mamba" in name else text
        found[config] = of_package(name + ending, config, settings, call)
    for name, more in ENCODERS.items():
        found[name] = of_package(
            f"{name}ForMaskedLM", name, TEXT | {"pad_token_id": 0} | more, gaps
        )
    small = {"vocab_size": WORDS, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
    found["DistilBert"] = of_package("DistilBertForMaskedLM", "DistilBert", small, gaps)
    for name in ("T5", "MT5"):
        found[name] = of_package(f"{name}ForConditionalGeneration", name, T5, translation)
    for name in TRANSLATORS:
        found[name] = of_package(f"{name}ForConditionalGeneration", name, SEQUENCES, translation)
    found["Marian"] = of_package("MarianMTModel", "Marian", SEQUENCES, translation)
    heard = SEQUENCES | {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16}
    del heard["max_position_embeddings"]
    found["Whisper"] = of_package(
        "WhisperForConditionalGeneration", "Whisper", heard,
        lambda: {"input_features": numbers(2, 8, 32), "labels": words(2, 7)},
    )  # fmt: skip
    for name in LOOKERS:
        found[name] = of_package(f"{name}ForImageClassification", name, IMAGES, images)
    windows = {
        "image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2],
        "window_size": 2,
    }  # fmt: skip
    two = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}
    convolving = {
        "Swin": windows, "Swinv2": windows, "ConvNext": two, "ConvNextV2": two,
        "ResNet": STAGES | {"layer_type": "basic"}, "RegNet": STAGES | {"groups_width": 8},
        "MobileNetV2": {"depth_multiplier": 0.25, "image_size": 32},
        "PoolFormer": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
    }  # fmt: skip
    for name, settings in convolving.items():
        size = 16 if settings is windows else 32
        found[name] = of_package(
            f"{name}ForImageClassification", name, settings, lambda size=size: images(size)
        )
    heard = {"input_values": numbers(2, 400), "labels": words(2, 5)}
    for name in ("Wav2Vec2", "Hubert"):
        found[name] = of_package(f"{name}ForCTC", name, SOUND, lambda: heard)
    both = {"text_config": TEXT | SPECIAL, "vision_config": IMAGES}
    found["CLIP"] = of_package("CLIPModel", "CLIP", both | {"projection_dim": 16}, images_with_text)
    found["Siglip"] = of_package("SiglipModel", "Siglip", both, images_with_text)
    for name in ("TimeSeriesTransformer", "Informer"):
        found[name] = of_package(f"{name}ForPrediction", name, SERIES, history)
    return found


# ----- torchvision -----

NETWORKS = [
    "alexnet", "vgg11_bn", "resnet18", "resnext50_32x4d", "densenet121", "squeezenet1_1",
    "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "efficientnet_b0", "regnet_y_400mf",
    "convnext_tiny", "vit_b_32", "swin_t", "swin_v2_t",
]  # fmt: skip


def torchvision() -> dict[str, Model]:
    """Networks of images."""
    models = importlib.import_module("torchvision").models
    found = {}
    for name in NETWORKS:
        more = {"image_size": 64} if name.startswith("vit") else {}
        found[name] = Model(
            lambda name=name, more=more: getattr(models, name)(weights=None, num_classes=5, **more),
            lambda model: loss_of(model(numbers(BATCH, 3, 64, 64))),
        )
    found["deeplabv3"] = Model(
        lambda: models.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=4
        ),
        lambda model: loss_of(model(numbers(1, 3, 64, 64))),
    )
    found["raft_small"] = Model(
        lambda: models.optical_flow.raft_small(weights=None),
        lambda model: loss_of(
            model(numbers(1, 3, 128, 128), numbers(1, 3, 128, 128, seed=2), num_flow_updates=2)
        ),
    )
    return found


# ----- vit-pytorch -----

USUAL = {
    "image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64,
}  # fmt: skip
# By module: the class, what is other than usual, and the shape of what it is given.
VIEWERS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "simple_vit": ("SimpleViT", {}, (2, 3, 32, 32)),
    "deepvit": ("DeepViT", {}, (2, 3, 32, 32)),
    "cait": ("CaiT", {"cls_depth": 1}, (2, 3, 32, 32)),
    "xcit": ("XCiT", {"cls_depth": 1}, (2, 3, 32, 32)),
    "parallel_vit": ("ViT", {"num_parallel_branches": 2}, (2, 3, 32, 32)),
    "learnable_memory_vit": ("ViT", {}, (2, 3, 32, 32)),
    "vit_for_small_dataset": ("ViT", {}, (2, 3, 32, 32)),
    "vit_with_patch_merger": (
        "ViT", {"patch_merge_layer": 1, "patch_merge_num_tokens": 4}, (2, 3, 32, 32),
    ),
    "simple_vit_with_qk_norm": ("SimpleViT", {}, (2, 3, 32, 32)),
    "simple_vit_with_register_tokens": ("SimpleViT", {}, (2, 3, 32, 32)),
}  # fmt: skip


def vit_pytorch() -> dict[str, Model]:
    """Transformers of images, by einops."""
    found = {}
    for module, (name, more, shape) in VIEWERS.items():
        found[module] = Model(
            lambda module=module, name=name, more=more: getattr(
                importlib.import_module(f"vit_pytorch.{module}"), name
            )(**USUAL | more),
            lambda model, shape=shape: loss_of(model(numbers(*shape))),
        )
    return found


PACKAGES = {"transformers": transformers, "torchvision": torchvision, "vit_pytorch": vit_pytorch}
