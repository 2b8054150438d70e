// Package trainers reads the configurations of fine-tuning programs (axolotl, LLaMA-Factory, torchtune, ms-swift, TRL,
// the Trainer of transformers, DeepSpeed, accelerate) as settings of vprof, and writes settings back by the same
// mapping.
//
// The meaning of keys is data, a table per trainer in tables: every key is mapped, known to change no memory, known to
// be unsupported, or unknown. Tables name the version of the trainer whose schema they were read from.
package trainers
