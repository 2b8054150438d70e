package hfconfig

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/opt"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/models/vit"
	"github.com/vprof/vprof/models/wav2vec2"
	"github.com/vprof/vprof/models/whisper"
)

// layerDropNote is for models that may leave layers out of a step at random.
const layerDropNote = "layers are never dropped: what is shown is the most that a step needs"

func readViT(r *reader) architecture {
	c := vit.Config{
		Image: r.square("image_size", 224), Patch: r.square("patch_size", 16),
		Channels: r.size("num_channels", 3, mostChannels), Width: r.size("hidden_size", 768, mostWidth),
		Layers: r.size("num_hidden_layers", 12, mostLayers), Heads: r.size("num_attention_heads", 12, mostWidth),
		Inner: r.size("intermediate_size", 3072, mostInner), Activation: r.word("hidden_act", "gelu", hf.Activations()),
		HiddenDropout:    r.probability("hidden_dropout_prob", 0),
		AttentionDropout: r.probability("attention_probs_dropout_prob", 0),
		NoQKVBias:        !r.flag("qkv_bias", true),
	}
	r.heads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	r.must(c.Image%c.Patch == 0, "image_size", "%d is not a multiple of patch_size %d", c.Image, c.Patch)
	labels := r.labels()
	problem := r.problem(labels)
	return architecture{
		summary: fmt.Sprintf("Vision Transformer, %d layers of width %d, patches of %d", c.Layers, c.Width, c.Patch),
		unit:    "image", batch: 32, batches: []int{8, 16, 32, 64, 128, 256},
		settings: []models.Setting{vit.ImageSetting(c.Image), hf.ClassesSetting(labels)},
		rules: []rule{func(k models.Case) (setting, reason string) {
			if size := k.Settings[vit.ImageSetting(0).Name]; size%c.Patch != 0 {
				return vit.ImageSetting(0).Name, fmt.Sprintf("%d is not a multiple of patch_size %d", size, c.Patch)
			}
			return "", ""
		}},
		task: func(k models.Case) train.Task {
			own := c
			own.Image = k.Settings[vit.ImageSetting(0).Name]
			return vit.Classification(own, classesOf(k, problem), k.Checkpointing)
		},
	}
}

func readWhisper(r *reader) architecture {
	r.refuse("apply_spec_augment", "false")
	c := whisper.Config{
		Vocab: r.size("vocab_size", 51865, mostVocab), Width: r.size("d_model", 384, mostWidth),
		MelBins:       r.size("num_mel_bins", 80, mostChannels),
		EncoderLayers: r.size("encoder_layers", 4, mostLayers), DecoderLayers: r.size("decoder_layers", 4, mostLayers),
		EncoderHeads:    r.size("encoder_attention_heads", 6, mostWidth),
		DecoderHeads:    r.size("decoder_attention_heads", 6, mostWidth),
		EncoderInner:    r.size("encoder_ffn_dim", 1536, mostInner),
		DecoderInner:    r.size("decoder_ffn_dim", 1536, mostInner),
		SourcePositions: r.size("max_source_positions", 1500, mostPositions),
		TargetPositions: r.size("max_target_positions", 448, mostPositions),
		Dropout:         r.probability("dropout", 0), AttentionDropout: r.probability("attention_dropout", 0),
		ActivationDropout: r.probability("activation_dropout", 0),
		Activation:        r.word("activation_function", "gelu", hf.Activations()),
		Untied:            !r.flag("tie_word_embeddings", true),
	}
	r.heads("encoder_attention_heads", c.EncoderHeads, "d_model", c.Width)
	r.heads("decoder_attention_heads", c.DecoderHeads, "d_model", c.Width)
	r.padToken(50256, c.Vocab)
	return architecture{
		summary: fmt.Sprintf("Whisper speech recognition, encoder of %d and decoder of %d layers of width %d",
			c.EncoderLayers, c.DecoderLayers, c.Width),
		unit: "clip", batch: 16, batches: []int{1, 4, 8, 16, 32, 64},
		settings: []models.Setting{rowLength(128, c.TargetPositions, "max_target_positions"), hf.PackedSetting(0)},
		notes: []string{
			"every clip is padded to max_source_positions (1500 are 30 s), so its length does not matter",
			"the encoder's positions are sinusoids and not trained",
			layerDropNote,
		},
		task: func(k models.Case) train.Task { return whisper.Transcription(c, k) },
	}
}

func readWav2Vec2(r *reader) architecture {
	r.refuse("add_adapter", "false")
	r.refuse("adapter_attn_dim")
	c := wav2vec2.Config{
		Vocab: r.size("vocab_size", 32, mostVocab), Width: r.size("hidden_size", 768, mostWidth),
		Layers: r.size("num_hidden_layers", 12, mostLayers), Heads: r.size("num_attention_heads", 12, mostWidth),
		Inner: r.size("intermediate_size", 3072, mostInner), Activation: r.word("hidden_act", "gelu", hf.Activations()),
		FeatureActivation: r.word("feat_extract_activation", "gelu", hf.Activations()),
		HiddenDropout:     r.probability("hidden_dropout", 0.1),
		AttentionDropout:  r.probability("attention_dropout", 0.1),
		ActivationDropout: r.probability("activation_dropout", 0.1),
		FeatureDropout:    r.probability("feat_proj_dropout", 0),
		FinalDropout:      r.probability("final_dropout", 0.1),
		PositionKernel:    r.size("num_conv_pos_embeddings", 128, mostKernel),
		PositionGroups:    r.size("num_conv_pos_embedding_groups", 16, mostWidth),
		ConvBias:          r.flag("conv_bias", false), StableLayerNorm: r.flag("do_stable_layer_norm", false),
		LayerNorms: r.word("feat_extract_norm", "group", []string{"group", "layer"}) == "layer",
		MaskVector: r.probability("mask_time_prob", 0.05) > 0 || r.probability("mask_feature_prob", 0) > 0,
		Conv:       r.convolutions(),
	}
	r.heads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	r.must(c.Width%c.PositionGroups == 0, "num_conv_pos_embedding_groups", "%d do not divide hidden_size %d",
		c.PositionGroups, c.Width)
	r.padToken(0, c.Vocab)
	return architecture{
		summary: fmt.Sprintf("wav2vec 2.0 speech recognition, %d layers of width %d", c.Layers, c.Width),
		unit:    "clip", batch: 4, batches: []int{1, 2, 4, 8, 16, 32},
		settings: wav2vec2.Settings(),
		notes: []string{
			"the input of the convolutions requires a gradient in training, so stage head runs backward through all " +
				"of them",
			layerDropNote,
			"SpecAugment is not counted: masks of a byte for every frame, and in backward for a moment a copy of a " +
				"gradient",
		},
		rules: []rule{c.CheckClip},
		task:  func(k models.Case) train.Task { return wav2vec2.Recognition(c, k) },
	}
}

// convolutions reads the layers that turn samples into features.
func (r *reader) convolutions() []wav2vec2.ConvLayer {
	widths := r.sizes("conv_dim", []int64{512, 512, 512, 512, 512, 512, 512}, mostWidth)
	strides := r.sizes("conv_stride", []int64{5, 2, 2, 2, 2, 2, 2}, mostKernel)
	kernels := r.sizes("conv_kernel", []int64{10, 3, 3, 3, 3, 2, 2}, mostKernel)
	r.must(len(strides) == len(widths), "conv_stride", "has %d numbers, conv_dim %d; there must be one for each layer",
		len(strides), len(widths))
	r.must(len(kernels) == len(widths), "conv_kernel", "has %d numbers, conv_dim %d; there must be one for each layer",
		len(kernels), len(widths))
	layers := make([]wav2vec2.ConvLayer, min(len(widths), len(strides), len(kernels)))
	for i := range layers {
		layers[i] = wav2vec2.ConvLayer{Width: widths[i], Kernel: kernels[i], Stride: strides[i]}
	}
	return layers
}

func readOPT(r *reader) architecture {
	c := opt.Config{
		Vocab: r.size("vocab_size", 50272, mostVocab), Width: r.size("hidden_size", 768, mostWidth),
		Layers: r.size("num_hidden_layers", 12, mostLayers), Heads: r.size("num_attention_heads", 12, mostWidth),
		Inner: r.size("ffn_dim", 3072, mostInner), Positions: r.size(positionsKey, 2048, mostPositions),
		Dropout: r.probability("dropout", 0.1), AttentionDropout: r.probability("attention_dropout", 0),
		Activation: r.word("activation_function", "relu", hf.Activations()),
		NormLast:   !r.flag("do_layer_norm_before", true), NoFinalNorm: r.flag("_remove_final_layer_norm", false),
		Bias: r.flag("enable_bias", true), PlainNorms: !r.flag("layer_norm_elementwise_affine", true),
		Untied: !r.flag("tie_word_embeddings", true),
	}
	c.EmbedWidth = r.sizeOr("word_embed_proj_dim", c.Width, c.Width, mostWidth)
	r.heads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	_, padded := r.padToken(1, c.Vocab)
	labels := r.labels()
	problem := r.problem(labels)
	a := decoder("OPT", c.Layers, c.Width, labels, rowLength(2048, c.Positions, positionsKey))
	a.eager()
	a.levers.Cache = true
	a.notes = append(a.notes,
		"transformers makes this model's masks without positions, so that rows that hold several sequences need none")
	if r.probability("layerdrop", 0) > 0 {
		a.notes = append(a.notes, layerDropNote)
	}
	a.task = func(k models.Case) train.Task {
		c := c
		c.Eager = hf.Eager.Chosen(k)
		if k.Task == classification {
			return opt.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
		}
		return opt.CausalLM(c, hf.TextOf(k))
	}
	return a
}
