// Package trainers converts the configurations of fine-tuning programs (axolotl, LLaMA-Factory, torchtune, ms-swift,
// TRL, the Trainer of transformers, DeepSpeed, accelerate) to settings of vprof, and writes settings back.
//
// The meaning of keys is data: the folder tables has one table for each trainer. A key is mapped, or does not affect
// memory, or is unsupported, or unknown. Each table names the release of the trainer whose schema it was made from.
//
// A fact is a value under vprof's name that a key implies, such as batch or lora-r. Rules derive further facts, and
// facts become settings.
package trainers
