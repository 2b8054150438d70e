package hfconfig

import (
	"fmt"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/opt"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/models/vit"
	"github.com/vprof/vprof/models/wav2vec2"
	"github.com/vprof/vprof/models/whisper"
	"github.com/vprof/vprof/profiler/trace"
)

// layerDropNote is the note of models that may drop layers at random (layerdrop).
const layerDropNote = "layers are never dropped: what is shown is the most that a step needs"

func readViT(r *reader) architecture {
	c := vit.Config{Image: r.squareSize("image_size", 224), Patch: r.squareSize("patch_size", 16)}
	r.setFields(&c, "Channels=num_channels:3 "+usualSizes+"Inner=intermediate_size:3072 Activation=hidden_act:gelu "+
		"HiddenDropout=hidden_dropout_prob:0 AttentionDropout=attention_probs_dropout_prob:0 !NoQKVBias=qkv_bias:true")
	r.checkHeads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	r.must(c.Image%c.Patch == 0, "image_size", "%d: need a multiple of patch_size, %d", c.Image, c.Patch)
	labels := r.labelCount()
	problem := r.problemType(labels)
	return architecture{
		summary: fmt.Sprintf("Vision Transformer, %d layers of width %d, patches of %d", c.Layers, c.Width, c.Patch),
		unit:    "image", batch: 32, batches: []int{8, 16, 32, 64, 128, 256},
		settings: []models.Setting{vit.ImageSetting(c.Image), hf.ClassesSetting(labels)},
		checks: []caseCheck{func(k models.Case) (setting, reason string) {
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
	var c whisper.Config
	r.setFields(&c, "Vocab=vocab_size:51865 Width=d_model:384 MelBins=num_mel_bins:80 EncoderLayers=encoder_layers:4 "+
		"DecoderLayers=decoder_layers:4 EncoderHeads=encoder_attention_heads:6 DecoderHeads=decoder_attention_heads:6 "+
		"EncoderInner=encoder_ffn_dim:1536 DecoderInner=decoder_ffn_dim:1536 "+
		"SourcePositions=max_source_positions:1500 TargetPositions=max_target_positions:448 "+
		"Dropout=dropout:0 AttentionDropout=attention_dropout:0 "+
		"ActivationDropout=activation_dropout:0 Activation=activation_function:gelu !Untied=tie_word_embeddings:true")
	r.checkHeads("encoder_attention_heads", c.EncoderHeads, "d_model", c.Width)
	r.checkHeads("decoder_attention_heads", c.DecoderHeads, "d_model", c.Width)
	r.padToken(50256, c.Vocab)
	return architecture{
		summary: fmt.Sprintf("Whisper speech recognition, encoder of %d and decoder of %d layers of width %d",
			c.EncoderLayers, c.DecoderLayers, c.Width),
		unit: "clip", batch: 16, batches: []int{1, 4, 8, 16, 32, 64},
		settings: []models.Setting{lengthSetting(128, c.TargetPositions, "max_target_positions"), hf.PackedSetting(0)},
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
	var c wav2vec2.Config
	r.setFields(&c, "Vocab=vocab_size:32 "+usualSizes+"Inner=intermediate_size:3072 Activation=hidden_act:gelu "+
		"FeatureActivation=feat_extract_activation:gelu HiddenDropout=hidden_dropout:0.1 "+
		"AttentionDropout=attention_dropout:0.1 ActivationDropout=activation_dropout:0.1 "+
		"FeatureDropout=feat_proj_dropout:0 FinalDropout=final_dropout:0.1 PositionKernel=num_conv_pos_embeddings:128 "+
		"PositionGroups=num_conv_pos_embedding_groups:16 ConvBias=conv_bias:false "+
		"StableLayerNorm=do_stable_layer_norm:false")
	c.LayerNorms = r.choice("feat_extract_norm", "group", []string{"group", "layer"}) == "layer"
	c.MaskVector = r.probability("mask_time_prob", 0.05) > 0 || r.probability("mask_feature_prob", 0) > 0
	c.Conv = r.readConvolutions()
	r.checkHeads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	r.must(c.Width%c.PositionGroups == 0, "num_conv_pos_embedding_groups", "%d: need a number that divides "+
		"hidden_size, %d", c.PositionGroups, c.Width)
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
		checks: []caseCheck{c.CheckClip},
		task:   func(k models.Case) train.Task { return wav2vec2.Recognition(c, k) },
	}
}

// readConvolutions reads the convolutions that turn audio samples into features.
func (r *reader) readConvolutions() []wav2vec2.ConvLayer {
	widths := r.sizes("conv_dim", []int64{512, 512, 512, 512, 512, 512, 512}, mostWidth)
	strides := r.sizes("conv_stride", []int64{5, 2, 2, 2, 2, 2, 2}, mostKernel)
	kernels := r.sizes("conv_kernel", []int64{10, 3, 3, 3, 3, 2, 2}, mostKernel)
	r.must(len(strides) == len(widths), "conv_stride", "the list has %d numbers, but conv_dim has %d: need one for "+
		"each layer", len(strides), len(widths))
	r.must(len(kernels) == len(widths), "conv_kernel", "the list has %d numbers, but conv_dim has %d: need one for "+
		"each layer", len(kernels), len(widths))
	return lists.Make(min(len(widths), len(strides), len(kernels)), func(i int) wav2vec2.ConvLayer {
		return wav2vec2.ConvLayer{Width: widths[i], Kernel: kernels[i], Stride: strides[i]}
	})
}

func readOPT(r *reader) architecture {
	var c opt.Config
	r.setFields(&c, "Vocab=vocab_size:50272 "+usualSizes+"Inner=ffn_dim:3072 Positions=max_position_embeddings:2048 "+
		"Dropout=dropout:0.1 AttentionDropout=attention_dropout:0 Activation=activation_function:relu "+
		"!NormLast=do_layer_norm_before:true NoFinalNorm=_remove_final_layer_norm:false Bias=enable_bias:true "+
		"!PlainNorms=layer_norm_elementwise_affine:true !Untied=tie_word_embeddings:true")
	c.EmbedWidth = r.sizeOr("word_embed_proj_dim", c.Width, c.Width, mostWidth)
	r.checkHeads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	_, padded := r.padToken(1, c.Vocab)
	labels := r.labelCount()
	problem := r.problemType(labels)
	a := newDecoder("OPT", c.Layers, c.Width, labels, lengthSetting(2048, c.Positions, positionsKey))
	a.addEagerSetting()
	a.supports.Cache = true
	a.notes = append(a.notes,
		"transformers makes this model's masks without positions, so that rows that hold several sequences need none")
	if r.probability("layerdrop", 0) > 0 {
		a.notes = append(a.notes, layerDropNote)
	}
	a.task = func(k models.Case) train.Task {
		c := c
		c.Eager = hf.IsEager(k, trace.FusedByOPT)
		if k.Task == classification {
			return opt.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
		}
		return opt.CausalLM(c, hf.TextOf(k))
	}
	return a
}
