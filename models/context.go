package models

import (
	"cmp"
	"errors"
)

// The values of [Strategy.CPBy]: how ranks that share a sequence attend over all of it.
const (
	// Ulysses exchanges tokens for heads by all-to-all (DeepSpeed, ms-swift).
	Ulysses = "ulysses"
	// Llama3 gathers keys and values head by head (llama3_flash_attn_varlen of
	// ring-flash-attn, which axolotl takes for packed rows).
	Llama3 = "llama3"
	// Ring sends keys and values round (ring_flash_attn of ring-flash-attn).
	Ring = "ring"
)

// ContextWays are the values of [Strategy.CPBy].
func ContextWays() []string { return []string{Ulysses, Llama3, Ring} }

// ContextWay is how ranks share sequences.
func (s *Strategy) ContextWay() string { return cmp.Or(s.CPBy, Ulysses) }

// checkContext says what does not go together with sequences that ranks share.
func (c Case) checkContext(m Model) error {
	switch {
	case c.Strategy.CP == 0:
		return nil
	case !m.Levers.Context:
		return errors.New("vprof records sequences that ranks share (cp) for transformers' decoders with plain attention (hf:config.json)")
	case c.Task != "" && len(m.Tasks) > 0 && c.Task != m.Tasks[0] || !c.Objective.IsZero():
		return errors.New("vprof records sequences that ranks share (cp) for learning the next token")
	}
	return nil
}
