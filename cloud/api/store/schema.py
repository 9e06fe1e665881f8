"""All tables together: whoever migrates or checks the database imports this."""

from cloud.api.store.identity_tables import METADATA as METADATA
from cloud.api.store.ledger_tables import METADATA as METADATA
from cloud.api.store.market_tables import METADATA as METADATA
from cloud.api.store.payout_tables import METADATA as METADATA
from cloud.api.store.tables import METADATA as METADATA
