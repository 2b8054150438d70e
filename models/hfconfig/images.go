package hfconfig

import (
	"fmt"
	"math"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/tower"
)

// Names of the settings of image inputs.
const (
	imagesSetting = "images"
	sideSetting   = "image-size"
	mostImages    = 1 << 10
)

// imageInput describes the images of a model and how they enter its decoder.
type imageInput struct {
	// side is the usual height and width of an image in pixels. fixed reports whether the tower accepts only that size.
	side  int64
	fixed bool
	// tokens returns the number of tokens of an image of the given height and width.
	tokens func(side int64) int64
	// of returns the recorder of the images' part of a step, for the multimodal model around the decoder.
	of func(w llama.Wrapper, p tower.ImageBatch, c models.Case) tower.Vision
	// crosses reports whether layers of the decoder attend to the tower's output (cross-attention).
	crosses bool
	tiles   int64 // that an image is cut into
	// without is the reason why a step on images cannot be recorded; empty if it can.
	without string
}

// imageBatch returns the number of images in each sequence of a case, and their height and width.
func (s *imageInput) imageBatch(c models.Case) tower.ImageBatch {
	if s == nil {
		return tower.ImageBatch{}
	}
	p := tower.ImageBatch{PerRow: c.Settings[imagesSetting], Side: s.side, Length: hf.TextOf(c).Length}
	if !s.fixed {
		p.Side = c.Settings[sideSetting]
	}
	return p
}

func (s *imageInput) withImages(w llama.Wrapper, c models.Case) llama.Wrapper {
	if p := s.imageBatch(c); p.PerRow > 0 {
		w.Vision = s.of(w, p, c)
	}
	return w
}

// addImageSettings adds the settings of images, and a note on which inputs are counted. s is nil if vprof records only
// steps on text. senses names the towers' inputs ("images and sound").
func (a *architecture) addImageSettings(senses string, s *imageInput) {
	alone := fmt.Sprintf("this is a step on text alone: the towers' weights are there, and what %s add is not counted",
		senses)
	if s == nil {
		a.addNote(alone)
		return
	}
	a.settings = append(a.settings, models.Setting{
		Name: imagesSetting, Max: mostImages,
		Usage: "images in every row, whose tokens count in the sequence; 0 for text alone",
	})
	if !s.fixed {
		a.settings = append(a.settings, models.Setting{
			Name:    sideSetting,
			Usage:   "height and width of an image in pixels; of one that is no square the root of its pixels",
			Default: s.side, Min: 1, Max: mostImage,
		})
	}
	a.addCaveat(func(c models.Case) (all []string) {
		p := s.imageBatch(c)
		if p.PerRow == 0 {
			return append(all, alone+"; --set images=1 has an image in every row")
		}
		if s.crosses {
			return append(all, fmt.Sprintf("images are cut into %d tiles of %d x %d pixels (%d images)", s.tiles,
				p.Side, p.Side, p.PerRow))
		}
		return append(all,
			fmt.Sprintf("images are of %d x %d pixels, and each is %d of the tokens of a row (%d images)", p.Side,
				p.Side, s.tokens(p.Side), p.PerRow))
	})
	a.addCheck(s.check)
}

func (s *imageInput) check(c models.Case) (setting, reason string) {
	p := s.imageBatch(c)
	switch {
	case p.PerRow == 0:
		return "", ""
	case s.without != "":
		return imagesSetting, s.without
	case hf.Eager.IsChosen(c) || hf.Flex.IsChosen(c):
		return imagesSetting,
			"vprof records towers with PyTorch's fused attention; leave out --set eager=1 or flex=1, or the images"
	case p.PerRow*s.tokens(p.Side) > p.Length:
		return imagesSetting, fmt.Sprintf("%d images of %d x %d pixels are %d tokens, and a row has %d; use a longer "+
			"--seq-len, or fewer or smaller images", p.PerRow, p.Side, p.Side, p.PerRow*s.tokens(p.Side), p.Length)
	case s.crosses && c.Checkpointing && c.Recompute.Reentrant():
		return imagesSetting,
			"several layers look at what the tower makes, and PyTorch raises \"Trying to backward through the graph " +
				"a second time\" under reentrant checkpointing; use --checkpointing=non-reentrant"
	case !c.Objective.IsZero():
		return imagesSetting, "vprof records images for learning the next token; leave out --objective, or the images"
	case c.Liger:
		return imagesSetting, "vprof does not record liger-kernel's layers in towers; leave out --liger, or the images"
	case hf.TextOf(c).Context.Ranks > 1:
		return imagesSetting,
			"vprof does not record images in sequences that ranks share (cp); leave out one of the two"
	case c.Strategy != nil && c.Strategy.Name == models.PP:
		return imagesSetting, "vprof does not record images in pipelines (pp); leave out one of the two"
	case c.IsSwitchOn("packed"):
		return imagesSetting,
			"vprof does not record images in rows that hold several sequences; leave out --set packed=1"
	}
	return "", ""
}

func visionQwen(read func(r *reader) tower.Size) func(r *reader) *imageInput {
	return func(r *reader) *imageInput {
		s := read(r)
		return &imageInput{
			side:   448,
			tokens: func(side int64) int64 { return tower.QwenTokens(s, side) },
			of: func(w llama.Wrapper, p tower.ImageBatch, _ models.Case) tower.Vision {
				return &tower.QwenImages{Tower: w.Before.ModuleAt("visual"), Size: s, Images: p}
			},
		}
	}
}

// visionLlava reads the images of LLaVA with CLIP's tower. Steps on images are not recorded with Pixtral's tower.
func visionLlava(r *reader) *imageInput {
	s, kind := r.llavaVision()
	if kind != "clip_vision_model" {
		return nil
	}
	cut := r.choice("vision_feature_select_strategy", "default", []string{"default", "full"}) == "default"
	activation := r.choice("projector_hidden_act", "gelu", hf.Activations())
	tokens := s.Positions
	if !cut {
		tokens++
	}
	return &imageInput{
		side: s.Image, fixed: true, tokens: func(int64) int64 { return tokens },
		of: func(w llama.Wrapper, p tower.ImageBatch, _ models.Case) tower.Vision {
			return &tower.CLIPImages{
				Tower: w.Before.ModuleAt("vision_tower"), Size: s, Classed: true, Images: p,
				Projected: tower.LlavaProjected(w.Before.ModuleAt("multi_modal_projector"), activation, cut),
			}
		},
	}
}

func visionGemma3(r *reader) *imageInput {
	s := r.gemma3Vision()
	tokens := r.size("mm_tokens_per_image", 256, mostPositions)
	side := int64(math.Sqrt(float64(tokens)))
	made := &imageInput{side: s.Image, fixed: true, tokens: func(int64) int64 { return tokens }}
	switch {
	case s.Pooled:
		made.without = "vprof does not record the head of SigLIP that pools (vision_use_head); the checkpoints of " +
			"Gemma 3 have none"
	case side*side != tokens || s.Image/s.Patch%side != 0:
		r.fail("mm_tokens_per_image", "%d: the %d patches of each side of an image cannot be pooled to so many "+
			"tokens; need a square number whose root divides the patches", tokens, s.Image/s.Patch)
		return made
	}
	window := r.sub("text_config").size("sliding_window", 4096, mostPositions)
	made.of = func(w llama.Wrapper, p tower.ImageBatch, c models.Case) tower.Vision {
		q := &tower.CLIPImages{
			Tower: w.Before.ModuleAt("vision_tower"), Size: s, Images: p,
			Projected: tower.Gemma3Projected(w.Before.ModuleAt("multi_modal_projector"), s, side),
		}
		if !hf.Flash.IsChosen(c) {
			q.Masked = tower.Gemma3Masks(window)
		}
		return q
	}
	return made
}

func visionMllama(r *reader) *imageInput {
	s, t, states := r.mllamaVision()
	made := &imageInput{side: s.Image, fixed: true, tokens: func(int64) int64 { return 1 }}
	out := r.sub("vision_config").size("vision_output_dim", 7680, mostWidth)
	if !tower.StatesWithin(states, s.Layers) || out != s.Width*int64(len(states)+1) {
		made.without = fmt.Sprintf("vision_output_dim %d of the configuration is not that of %d states of width %d "+
			"(intermediate_layers_indices), each of one of the %d layers", out, len(states)+1, s.Width, s.Layers)
	}
	made.crosses, made.tiles = true, t.Tiles
	made.of = func(w llama.Wrapper, p tower.ImageBatch, _ models.Case) tower.Vision {
		return &tower.MllamaImages{
			Tower: w.Before.ModuleAt("vision_model"), Projector: w.After, Size: s, Tiled: t,
			States: states, Images: p,
		}
	}
	return made
}
