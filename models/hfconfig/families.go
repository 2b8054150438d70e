package hfconfig

// A family is a model_type of transformers.
type family struct {
	// heads are the tasks by the names that stand in architectures.
	heads map[string]string
	// usual is the task if a file has no architectures.
	usual string
	// half says that weights may be in half precision.
	half bool
	// aliases are further names of keys: the attribute_map, turned around.
	aliases map[string]string
	read    func(*reader) architecture
}

// families are all types: those here, and those of the tables of decoders.
func families() map[string]family {
	all := map[string]family{
		"bert": {
			heads: map[string]string{
				"BertForMaskedLM": maskedLM, "BertForSequenceClassification": classification,
				"BertForTokenClassification": tokens,
			},
			usual: maskedLM, half: true, read: readBERT,
		},
		"roberta": {
			heads: map[string]string{
				"RobertaForMaskedLM": maskedLM, "RobertaForSequenceClassification": classification,
				"RobertaForTokenClassification": tokens,
			},
			usual: maskedLM, half: true, read: readRoBERTa,
		},
		"distilbert": {
			heads: map[string]string{
				"DistilBertForMaskedLM": maskedLM, "DistilBertForSequenceClassification": classification,
				"DistilBertForTokenClassification": tokens,
			},
			usual: maskedLM, half: true, read: readDistil,
			aliases: map[string]string{
				"dim": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers",
			},
		},
		"gpt2": {
			heads: map[string]string{"GPT2LMHeadModel": causalLM, "GPT2ForSequenceClassification": classification},
			usual: causalLM, half: true, read: readGPT,
			aliases: map[string]string{
				"n_embd": "hidden_size", "n_positions": "max_position_embeddings", "n_head": "num_attention_heads",
				"n_layer": "num_hidden_layers",
			},
		},
		"opt": {
			heads: map[string]string{"OPTForCausalLM": causalLM, "OPTForSequenceClassification": classification},
			usual: causalLM, half: true, read: readOPT,
		},
		"vit": {
			heads: map[string]string{"ViTForImageClassification": classification}, usual: classification, read: readViT,
		},
		"whisper": {
			heads: map[string]string{"WhisperForConditionalGeneration": transcription}, usual: transcription,
			read: readWhisper,
			aliases: map[string]string{
				"d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads",
				"encoder_layers": "num_hidden_layers",
			},
		},
		"wav2vec2": {heads: map[string]string{"Wav2Vec2ForCTC": ctc}, usual: ctc, read: readWav2Vec2},
	}
	for kind, d := range relatives {
		all[kind] = d.family()
	}
	for kind, w := range wrappers {
		all[kind] = w.family()
	}
	for kind, d := range gemmas {
		all[kind] = d.family()
	}
	return all
}
