"""Trains a small image-text model: pairs listed in a CSV file, captions by a tokenizer of transformers."""

import argparse
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from transformers import PreTrainedTokenizerFast


class CaptionDataset(Dataset):
    def __init__(self, root, tokenizer, max_length=32, image_size=160):
        self.root = Path(root)
        self.df = pd.read_csv(self.root / "captions.csv")
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.transform = transforms.Compose(
            [
                transforms.Resize(image_size, interpolation=transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(image_size),
                transforms.ToTensor(),
                transforms.Normalize((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
            ]
        )

    def __len__(self):
        return len(self.df)

    def __getitem__(self, idx):
        row = self.df.iloc[idx]
        image = Image.open(self.root / row["image"]).convert("RGB")
        encoding = self.tokenizer(
            row["caption"],
            max_length=self.max_length,
            padding="max_length",
            truncation=True,
            return_tensors="pt",
        )
        return {
            "pixel_values": self.transform(image),
            "input_ids": encoding["input_ids"].squeeze(0),
            "attention_mask": encoding["attention_mask"].squeeze(0),
        }


class TwoTowers(nn.Module):
    def __init__(self, words, width=32):
        super().__init__()
        self.image = nn.Conv2d(3, width, 16, stride=16)
        self.text = nn.Embedding(words, width)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, pixel_values, input_ids, attention_mask):
        image = F.normalize(self.image(pixel_values).mean((2, 3)), dim=-1)
        mask = attention_mask.unsqueeze(-1)
        text = F.normalize((self.text(input_ids) * mask).sum(1) / mask.sum(1), dim=-1)
        logits = self.scale.exp() * image @ text.T
        labels = torch.arange(len(logits))
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(Path(args.data) / "tokenizer.json"), pad_token="[PAD]", unk_token="[UNK]"
    )
    dataset = CaptionDataset(args.data, tokenizer)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    model = TwoTowers(len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    while step < args.steps:
        for batch in loader:
            loss = model(**batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
