"""The app: sends an alert for each sale that it is given. Spark's workers import this module."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from multilane import App, Message

app = App(Path(__file__).with_name("multilane.yaml"))


class PricedSale(BaseModel):
    id: int
    revenue: int


@app.listener("sales")
async def alert(sale: PricedSale) -> None:
    await app.producers.aproduce(Message("alerts", key=str(sale.id), body=sale.model_dump()))
